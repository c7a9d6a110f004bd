"""Uncertainty studies of simulators: coverage of outputs, of Sobol' indices and of quantiles, against many runs.

Tails are run where a share of the inputs is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from common import arguments, mean_and_error, run_cells
from scipy import stats
from scipy.stats import qmc

import rfgp
from rfgp.diagnostics.sensitivity.given import distribution
from rfgp.diagnostics.sensitivity.inputs import InputDistribution, normal_nodes, points
from rfgp.diagnostics.sensitivity.sampled import levels, sampled_variances

A = torch.tensor([0.0, 1.0, 4.5, 9.0, 99.0], dtype=torch.float64)
QUANTILES, DESIGNS = (0.05, 0.5, 0.95), 10


def beam(x: torch.Tensor) -> torch.Tensor:
    """Deflection (mm), stress (MPa) and first frequency (Hz) of a cantilever beam of steel or aluminum, (N, 3)."""
    width, height, length, load, modulus = x.unbind(-1)
    inertia = width * height**3 / 12.0
    deflection = load * length**3 / (3.0 * modulus * inertia)
    stress = 6.0 * load * length / (width * height.square())
    mass = 7850.0 * width * height
    frequency = 1.8751**2 / (2.0 * math.pi) * (modulus * inertia / (mass * length**4)).sqrt()
    return torch.stack([1e3 * deflection, 1e-6 * stress, frequency], dim=-1)


def ishigami(x: torch.Tensor) -> torch.Tensor:
    """The function of Ishigami and Homma (1990) on [-pi, pi]^3, (N, 1)."""
    value = x[:, 0].sin() + 7.0 * x[:, 1].sin().square() + 0.1 * x[:, 2] ** 4 * x[:, 0].sin()
    return value.unsqueeze(-1)


def g_function(x: torch.Tensor) -> torch.Tensor:
    """The g-function of Sobol' on [0, 1]^5, which has kinks, (N, 1)."""
    return (((4.0 * x - 2.0).abs() + A) / (1.0 + A)).prod(-1, keepdim=True)


def tails(x: torch.Tensor) -> torch.Tensor:
    """Functions that grow in all ways with the first of four inputs, two of which have long tails, (N, 6)."""
    first, second, third, fourth = x.unbind(-1)
    return torch.stack(
        [
            first + second + 2.0 * third + torch.sin(2.0 * math.pi * fourth),
            first * (third + 0.5) + fourth,
            first.log() + second * third + fourth,
            first / (1.0 + first) + 0.3 * third * fourth + 0.2 * second,
            first**0.7 / second * (1.0 + third),
            first.square() + 8.0 * second * third + fourth,
        ],
        dim=-1,
    )


@dataclass(frozen=True)
class Simulator:
    """A function of inputs with distributions, which is run in a box.

    :param described: the distributions by name, as studies take them.
    :param box: its limits.
    :param sizes: numbers of runs.
    :param parts: of the quadrature of each input, where long tails leave no other way to known indices.
    """

    function: Callable[[torch.Tensor], torch.Tensor]
    described: dict[str, Any]
    box: list[tuple[float, float]]
    sizes: tuple[int, ...] = (60, 150)
    parts: tuple[int, ...] = ()

    @property
    def inputs(self) -> list[InputDistribution]:
        """The distributions."""
        return [distribution(words) for words in self.described.values()]

    def new_runs(self, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs (M, d) that are spread as their distributions, and their outputs (M, T)."""
        x = points(self.inputs, levels(4096, len(self.described), seed=seed + 100))
        return x, self.function(x)


def in_box(function: Callable[[torch.Tensor], torch.Tensor], box: list[tuple[float, float]]) -> Simulator:
    """A simulator whose inputs are uniform in the box."""
    return Simulator(function, {f"x{k + 1}": f"uniform{pair}" for k, pair in enumerate(box)}, box)


def to_share(share: float) -> Simulator:
    """The functions of tails, run where a share of each log-normal input is."""
    described = {"x1": "lognormal(0, 1)", "x2": "lognormal(0, 0.5)", "x3": "uniform(0, 1)", "x4": "uniform(0, 1)"}
    ends = [(math.exp(-sd * z), math.exp(sd * z)) for z in [stats.norm.ppf(0.5 + 0.5 * share)] for sd in (1.0, 0.5)]
    return Simulator(tails, described, [*ends, (0.0, 1.0), (0.0, 1.0)], (60,), (16, 6, 4, 4))


SIMULATORS = {
    "beam": Simulator(
        beam,
        {
            "width": "normal(0.05, 0.001)",
            "height": "normal(0.1, 0.002)",
            "length": "uniform(1.9, 2.1)",
            "load": "lognormal(6.9, 0.15)",
            "modulus": "triangular(190e9, 205e9, 215e9)",
        },
        [(0.046, 0.054), (0.092, 0.108), (1.9, 2.1), (550.0, 1750.0), (190e9, 215e9)],
    ),
    "Ishigami": in_box(ishigami, [(-math.pi, math.pi)] * 3),
    "g-function": in_box(g_function, [(0.0, 1.0)] * 5),
    **{f"tails to {share} %": to_share(0.01 * share) for share in (90, 95, 99)},
}


def truth(simulator: Simulator, num_points: int) -> dict[str, torch.Tensor]:
    """Indices (2, T, d) and quantiles (3, T) by runs of the simulator itself."""
    function, inputs = simulator.function, simulator.inputs
    count = function(points(inputs, torch.full((1, len(inputs)), 0.5, dtype=torch.float64))).shape[-1]
    y = function(points(inputs, levels(num_points, len(inputs), seed=7)))
    quantiles = torch.from_numpy(np.quantile(y.numpy(), QUANTILES, axis=0))
    if simulator.parts:
        return {"indices": by_quadrature(simulator), "quantiles": quantiles}
    variances, _ = sampled_variances(function, inputs, num_points, False, count)
    whole = variances.variance.unsqueeze(-1)
    return {
        "indices": torch.stack([variances.single / whole, (whole - variances.others) / whole]),
        "quantiles": quantiles,
    }


def by_quadrature(simulator: Simulator) -> torch.Tensor:
    """Indices (2, T, d) by a grid of nodes."""
    inputs, dims = simulator.inputs, range(len(simulator.inputs))
    nodes, weights = zip(*(normal_nodes(parts) for parts in simulator.parts), strict=True)
    grids = torch.meshgrid(
        *(one.quantile(torch.special.ndtr(z)) for one, z in zip(inputs, nodes, strict=True)), indexing="ij"
    )
    y = simulator.function(torch.stack(grids, dim=-1).flatten(0, -2)).unflatten(0, [len(z) for z in nodes])

    def mean(values: torch.Tensor, over: set[int]) -> torch.Tensor:
        for k in over:
            values = (values * weights[k].reshape([-1 if j == k else 1 for j in (*dims, -1)])).sum(k, keepdim=True)
        return values

    def variance(known: set[int]) -> torch.Tensor:
        part = mean(y, set(dims) - known)
        return mean((part - mean(part, known)).square(), known).flatten()

    every = set(dims)
    whole = variance(every)
    first = [variance({k}) / whole for k in dims]
    return torch.stack([torch.stack(first, -1), torch.stack([1.0 - variance(every - {k}) / whole for k in dims], -1)])


def studied(simulator: Simulator, x: np.ndarray, seed: int, known: dict[str, torch.Tensor]) -> dict[str, Any]:
    """A study of runs at x (N, d), compared with what is known."""
    y = simulator.function(torch.from_numpy(x)).numpy()
    wall, start = time.perf_counter(), time.process_time()
    study = rfgp.study.uncertainty(x, y, simulator.described)
    seconds, wall = time.process_time() - start, time.perf_counter() - wall
    at, outputs = simulator.new_runs(seed)
    mean, std = (part.reshape(len(at), -1) for part in study.predict(at))
    error, spread = outputs - mean, outputs.std(0)
    indices = torch.stack([study.sobol.first.value, study.sobol.total.value])
    ends = zip(study.sobol.first.interval(), study.sobol.total.interval(), strict=True)
    lower, upper = (torch.stack(end) for end in ends)
    between = [study.propagation.quantile(level).interval() for level in QUANTILES]
    q_low, q_high = (torch.stack([pair[i] for pair in between]) for i in (0, 1))
    values = torch.stack([study.propagation.quantile(level).value for level in QUANTILES])
    return {
        "seed": seed,
        "seconds": seconds,
        "wall_seconds": wall,
        "explained": study.check.explained.tolist(),
        "left_out_coverage": study.check.coverage.tolist(),
        "spread": study.check.spread.tolist(),
        "relative_error": (error.square().mean(0).sqrt() / spread).tolist(),
        "coverage": ((error.abs() <= 1.96 * std).double().mean(0)).tolist(),
        "index_error": float((indices - known["indices"]).abs().max()),
        "index_width": float((upper - lower).mean()),
        "indices_inside": float(_inside(lower, known["indices"], upper)),
        "quantile_error": float(((values - known["quantiles"]).abs() / spread).max()),
        "quantiles_inside": float(_inside(q_low, known["quantiles"], q_high)),
    }


def _inside(low: torch.Tensor, value: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """The share of values in their intervals; an index below 1e-4 is zero as far as 10^6 runs can tell."""
    tiny = 1e-4 * value.abs().clamp_min(1.0)
    return ((low - tiny <= value) & (value <= high + tiny)).double().mean()


def studies(name: str, runs: int, designs: int, num_points: int) -> list[dict[str, Any]]:
    """Studies of several fresh Latin hypercube designs."""
    simulator = SIMULATORS[name]
    known, (low, high) = truth(simulator, num_points), np.array(simulator.box).T
    return [
        studied(simulator, qmc.scale(qmc.LatinHypercube(len(low), seed=seed).random(runs), low, high), seed, known)
        for seed in range(designs)
    ]


COLUMNS = {
    "error": "relative_error",
    "coverage": "coverage",
    "index error": "index_error",
    "indices inside": "indices_inside",
    "quantiles inside": "quantiles_inside",
    "index width": "index_width",
}
"""What is shown, and what cells call it."""


def claims(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Means and standard errors over designs, and median seconds, of every simulator and number of runs."""
    return {
        name: {"seconds": float(np.median([cell["seconds"] for cell in cells]))}
        | {key: mean_and_error([float(np.mean(cell[own])) for cell in cells]) for key, own in COLUMNS.items()}
        for name, cells in result["cells"].items()
    }


def main() -> None:
    parser = arguments(__doc__, "uncertainty_study")
    options = parser.parse_args()
    torch.set_num_threads(1)
    points = 2**12 if options.quick else 2**20
    cells = [
        (f"{name}, {runs} runs", partial(studies, name, runs, 1 if options.quick else DESIGNS, points))
        for name, simulator in SIMULATORS.items()
        for runs in ((40,) if options.quick else simulator.sizes)
    ]
    run_cells(options, cells, claims)


if __name__ == "__main__":
    main()
