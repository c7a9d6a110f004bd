"""Uncertainty studies of simulators: coverage of outputs, of Sobol' indices and of quantiles, against many runs."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import torch
from common import arguments, environment, markdown, mean_and_error, resumed, write
from scipy.stats import qmc

import rfgp
from rfgp.diagnostics.sensitivity.given import distribution
from rfgp.diagnostics.sensitivity.inputs import points
from rfgp.diagnostics.sensitivity.sampled import levels, sampled_variances

A = torch.tensor([0.0, 1.0, 4.5, 9.0, 99.0], dtype=torch.float64)
QUANTILES = (0.05, 0.5, 0.95)


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


SIMULATORS: dict[str, tuple[Any, dict[str, str], list[tuple[float, float]]]] = {
    "beam": (
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
    "Ishigami": (
        ishigami,
        {f"x{k}": f"uniform({-math.pi}, {math.pi})" for k in range(1, 4)},
        [(-math.pi, math.pi)] * 3,
    ),
    "g-function": (g_function, {f"x{k}": "uniform(0, 1)" for k in range(1, 6)}, [(0.0, 1.0)] * 5),
}


def truth(name: str, num_points: int) -> dict[str, torch.Tensor]:
    """Indices (2, T, d) and quantiles (3, T) by runs of the simulator itself."""
    function, described, _ = SIMULATORS[name]
    inputs = [distribution(words) for words in described.values()]
    count = function(points(inputs, torch.full((1, len(inputs)), 0.5, dtype=torch.float64))).shape[-1]
    variances, _ = sampled_variances(function, inputs, num_points, False, count)
    whole = variances.variance.unsqueeze(-1)
    y = function(points(inputs, levels(num_points, len(inputs), seed=7)))
    quantiles = torch.from_numpy(np.quantile(y.numpy(), QUANTILES, axis=0))
    return {
        "indices": torch.stack([variances.single / whole, (whole - variances.others) / whole]),
        "quantiles": quantiles,
    }


def measured(name: str, runs: int, seed: int, known: dict[str, torch.Tensor]) -> dict[str, Any]:
    """A study of a fresh Latin hypercube design."""
    function, described, limits = SIMULATORS[name]
    low, high = np.array(limits).T
    x = qmc.scale(qmc.LatinHypercube(len(limits), seed=seed).random(runs), low, high)
    y = function(torch.from_numpy(x)).numpy()
    wall, start = time.perf_counter(), time.process_time()
    study = rfgp.study.uncertainty(x, y, described)
    seconds, wall = time.process_time() - start, time.perf_counter() - wall
    inputs = list(study.runs.inputs.values())
    at = points(inputs, levels(4096, len(inputs), seed=seed + 100))
    mean, std = (part.reshape(len(at), -1) for part in study.predict(at))
    error = function(at) - mean
    indices = torch.stack([study.sobol.first.value, study.sobol.total.value])
    ends = zip(study.sobol.first.interval(), study.sobol.total.interval(), strict=True)
    lower, upper = (torch.stack(end) for end in ends)
    between = [study.propagation.quantile(level).interval() for level in QUANTILES]
    q_low, q_high = (torch.stack([pair[i] for pair in between]) for i in (0, 1))
    values = torch.stack([study.propagation.quantile(level).value for level in QUANTILES])
    spread = function(at).std(0)
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
        "indices_inside": float(_inside(lower, known["indices"], upper)),
        "quantile_error": float(((values - known["quantiles"]).abs() / spread).max()),
        "quantiles_inside": float(_inside(q_low, known["quantiles"], q_high)),
    }


def _inside(low: torch.Tensor, value: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """The share of values in their intervals; an index below 1e-4 is zero as far as 10^6 runs can tell."""
    tiny = 1e-4 * value.abs().clamp_min(1.0)
    return ((low - tiny <= value) & (value <= high + tiny)).double().mean()


def main() -> None:
    parser = arguments(__doc__, "uncertainty_study")
    parser.add_argument("--designs", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    sizes = (40,) if options.quick else (60, 150)
    result = resumed(options)
    result.setdefault("cells", {})
    for name in SIMULATORS:
        known = truth(name, 2**12 if options.quick else 2**20)
        for runs in sizes:
            cells = result["cells"].setdefault(f"{name}, {runs} runs", [])
            for seed in range(len(cells), 1 if options.quick else options.designs):
                cells.append(measured(name, runs, seed, known))
                result["environment"] = environment()
                write(options.out, result)
    header = ["simulator", "seconds", "output error / sd", "coverage", "index error", "inside", "quantiles inside"]
    rows = []
    for name, cells in result["cells"].items():
        columns = [[float(np.mean(cell[key])) for cell in cells] for key in ("relative_error", "coverage")]
        columns += [[cell[key] for cell in cells] for key in ("index_error", "indices_inside", "quantiles_inside")]
        shown = ["{:.4f} ± {:.4f}".format(*mean_and_error(column)) for column in columns]
        rows.append([name, f"{np.median([cell['seconds'] for cell in cells]):.1f}", *shown])
    print(markdown(header, rows))


if __name__ == "__main__":
    main()
