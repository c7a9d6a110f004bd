"""Sobol' indices of a model: error against runs beside Saltelli's estimator, and coverage of intervals."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Callable
from typing import Any

import gpytorch
import numpy as np
import torch
from common import add_plot, arguments, mean_and_error, run_cells, save_figure
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch_models import ExactModel
from torch import Tensor
from torch.distributions import Normal
from torch.quasirandom import SobolEngine

import rfgp
from rfgp.diagnostics import CalibrationCurve, recalibrate_variance
from rfgp.diagnostics.sensitivity import Uniform, sobol_indices

A = torch.tensor([0.0, 1.0, 4.5, 9.0], dtype=torch.float64)


def ishigami(x: torch.Tensor) -> torch.Tensor:
    """The function of Ishigami and Homma (1990) on [-pi, pi]^3."""
    return x[:, 0].sin() + 7.0 * x[:, 1].sin().square() + 0.1 * x[:, 2] ** 4 * x[:, 0].sin()


def g_function(x: torch.Tensor) -> torch.Tensor:
    """The g-function of Sobol' on [0, 1]^4, with a = 0, 1, 4.5 and 9; it has kinks."""
    return (((4.0 * x - 2.0).abs() + A) / (1.0 + A)).prod(-1)


def ishigami_indices() -> list[float]:
    """First-order, then total indices."""
    b4, b8 = 0.1 * math.pi**4, 0.01 * math.pi**8
    v1, v2, v13 = 0.5 * (1.0 + b4 / 5.0) ** 2, 49.0 / 8.0, b8 * (1.0 / 18.0 - 1.0 / 50.0)
    whole = v1 + v2 + v13
    return [v1 / whole, v2 / whole, 0.0, (v1 + v13) / whole, v2 / whole, v13 / whole]


def g_indices() -> list[float]:
    """First-order, then total indices."""
    own = 1.0 / (3.0 * (1.0 + A).square())
    whole = (1.0 + own).prod() - 1.0
    total = own * (1.0 + own).prod() / (1.0 + own)
    return [*(own / whole).tolist(), *(total / whole).tolist()]


FUNCTIONS: dict[str, Any] = {
    "Ishigami": (ishigami, ishigami_indices(), [(-math.pi, math.pi)] * 3),
    "g-function": (g_function, g_indices(), [(0.0, 1.0)] * 4),
}
SMOOTHNESS = {"Ishigami": None, "g-function": 1.5}
NOISE = 1e-6  # of the variance: a simulator has none
RUNS = 128  # of a design whose intervals are counted
FIRST_SEED = 1000  # of a design that is measured: the setting was chosen on designs 0 to 11


def interactions(dim: int, smoothness: float | None) -> Kernel:
    """A sum of a kernel for every input and for every pair: each of its terms has few dimensions."""

    def part(*columns: int) -> Kernel:
        if smoothness is None:
            return RBFKernel(active_dims=list(columns), ard_num_dims=len(columns))
        return MaternKernel(nu=smoothness, active_dims=list(columns), ard_num_dims=len(columns))

    sets = [(k,) for k in range(dim)] + [(k, other) for k in range(dim) for other in range(k + 1, dim)]
    kernel, *others = [ScaleKernel(part(*columns)) for columns in sets]
    for other in others:
        kernel = kernel + other
    return kernel


def calibrate(model: rfgp.WeightSpaceGP, kernel: Kernel, x: Tensor, y: Tensor) -> float:
    """Scale the prior and the noise until squares of standardized leave-one-out residuals have mean one.

    The posterior mean stays as it was. Source: Bachoc (2013), cross validation of the variance parameter.
    """
    left_out = model.leave_one_out(x, y)
    factor = recalibrate_variance(Normal(left_out.mean, left_out.variance.sqrt()), y).factor
    for term in kernel.kernels:
        term.outputscale = factor * term.outputscale.detach()
    model.likelihood.noise = factor * model.likelihood.noise.detach()
    model.condition(x, y)
    return factor


def by_model(name: str, runs: int, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Indices of a model of a fresh design, with intervals."""
    function, _, limits = FUNCTIONS[name]
    torch.manual_seed(seed)
    low, high = (torch.tensor([pair[i] for pair in limits], dtype=torch.float64) for i in (0, 1))
    x = low + (high - low) * SobolEngine(len(limits), scramble=True, seed=seed).draw(runs, dtype=torch.float64)
    y = function(x)
    y = (y - y.mean()) / y.std()
    start = time.process_time()
    likelihood = GaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(0.1 * NOISE))
    likelihood.noise = NOISE
    likelihood.raw_noise.requires_grad_(False)
    exact = interactions(len(limits), SMOOTHNESS[name])
    trained = ExactModel(x, y, likelihood, exact)
    rfgp.fit(trained, max_evaluations=40, progress=False)
    width = options.num_features * len(exact.kernels)
    kernel = rfgp.approximate(exact, width, input_dim=len(limits), seed=seed)
    model = rfgp.WeightSpaceGP(kernel, likelihood, trained.mean_module).condition(x, y)
    factor = calibrate(model, exact, x, y)
    fitted = time.process_time()
    inputs = [Uniform(*pair) for pair in limits]
    found = sobol_indices(model, inputs, second_order=False, num_functions=400)
    low, high = (torch.cat(ends) for ends in zip(found.first.interval(), found.total.interval(), strict=True))
    value = torch.cat([found.first.value, found.total.value])
    below = torch.cat([found.first.samples, found.total.samples], dim=-1) < torch.tensor(FUNCTIONS[name][1])
    return {
        "seed": seed,
        "factor": factor,
        "value": value.tolist(),
        "low": low.tolist(),
        "high": high.tolist(),
        "below": below.double().mean(0).tolist(),
        "fit_seconds": fitted - start,
        "index_seconds": time.process_time() - fitted,
    }


def by_saltelli(name: str, base: int, seed: int) -> dict[str, Any]:
    """SALib's estimates from base (d + 2) runs."""
    from SALib.analyze import sobol as analyze
    from SALib.sample import sobol as sample

    function, _, limits = FUNCTIONS[name]
    problem = {"num_vars": len(limits), "names": [f"x{k}" for k in range(len(limits))], "bounds": limits}
    x = sample.sample(problem, base, calc_second_order=False, seed=seed)
    y = function(torch.from_numpy(x)).numpy()
    found = analyze.analyze(problem, y, calc_second_order=False, num_resamples=2)
    return {"value": [*found["S1"].tolist(), *found["ST"].tolist()]}


def root_mean_square(values: list[list[float]], truth: list[float]) -> float:
    return float(np.sqrt(np.mean((np.array(values) - np.array(truth)) ** 2)))


def claims(result: dict[str, Any]) -> dict[str, Any]:
    """Errors by method and runs, coverage of intervals, and the runs that Saltelli's estimator needs for our error."""
    found: dict[str, Any] = {name: {} for name in FUNCTIONS}
    for key, cell in result["cells"].items():
        method, name, runs = key.split("/")
        truth = FUNCTIONS[name][1]
        found[name][f"{method}, {runs} runs"] = {"error": root_mean_square([one["value"] for one in cell], truth)}
        if "below" in cell[0]:
            found[name][f"{method}, {runs} runs"]["coverage"] = coverage(cell, truth)[0]
    for name, errors in found.items():
        if f"model, {RUNS} runs" in errors:
            errors["Saltelli's runs for this error"] = runs_for_error(result, name)
    return found


def runs_for_error(result: dict[str, Any], name: str) -> float:
    """How many runs Saltelli's estimator needs for the error of a model, by a power law of its errors."""
    truth, runs, errors = FUNCTIONS[name][1], [], []
    for key, cell in result["cells"].items():
        method, function, count = key.split("/")
        if (method, function) == ("saltelli", name):
            runs.append(int(count))
            errors.append(root_mean_square([entry["value"] for entry in cell], truth))
    slope, offset = np.polyfit(np.log(errors), np.log(runs), 1)
    error = root_mean_square([entry["value"] for entry in result["cells"][f"model/{name}/{RUNS}"]], truth)
    return float(np.exp(offset + slope * np.log(error)))


def coverage(cell: list[dict[str, Any]], truth: list[float], level: float = 0.95) -> tuple[float, float]:
    """The fraction of intervals that contain an index that is not zero, and its standard error over designs.

    An index that is zero does not count: no function drawn has exactly none, so that it lies below every interval.
    """
    known, edge = [k for k, value in enumerate(truth) if value > 0.0], 0.5 * (1.0 - level)
    return mean_and_error([float(np.mean([edge <= entry["below"][k] <= 1.0 - edge for k in known])) for entry in cell])


def calibration(cell: list[dict[str, Any]], truth: list[float]) -> CalibrationCurve:
    """The coverage of intervals by their nominal level."""
    levels = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95]
    found = torch.tensor([coverage(cell, truth, level) for level in levels])
    return CalibrationCurve(torch.tensor(levels), found[:, 0], found[:, 1], torch.full((len(levels),), len(cell)))


def draw(options: argparse.Namespace) -> None:
    """Error against runs, and the coverage of intervals, for both functions."""
    cells = json.loads(options.out.read_text())["cells"]
    figure, axes = rfgp.study.plots.figure(2, 2)
    for ax, (name, (_, truth, _)) in zip(axes[0], FUNCTIONS.items(), strict=True):
        curves: dict[str, tuple[list[int], list[float]]] = {}
        for key, cell in sorted(cells.items(), key=lambda item: int(item[0].split("/")[-1])):
            method, function, runs = key.split("/")
            if function == name:
                x, y = curves.setdefault({"model": "model, closed form", "saltelli": "Saltelli"}[method], ([], []))
                x.append(int(runs))
                y.append(root_mean_square([entry["value"] for entry in cell], truth))
        drawn = {label: rfgp.study.plots.Curve(*values) for label, values in curves.items()}
        rfgp.study.plots.comparison(drawn, xlabel="runs of the function", ylabel="error of the indices", ax=ax)
        ax.set_title(name, fontsize="medium")
    for ax, (name, (_, truth, _)) in zip(axes[1], FUNCTIONS.items(), strict=True):
        cell = cells[f"model/{name}/{RUNS}"]
        rfgp.study.plots.calibration({f"{len(cell)} designs of {RUNS} runs": calibration(cell, truth)}, ax=ax)
        ax.set_ylabel("share of indices inside")
        ax.legend(frameon=False, fontsize="small", loc="upper left")
        ax.set(xlim=(0.0, 1.02), ylim=(0.0, 1.25))
    rfgp.study.plots.legend(figure, list(axes[0]))
    save_figure(figure, options.out)


def main() -> None:
    parser = arguments(__doc__ or "", "sensitivity")
    add_plot(parser)
    parser.add_argument("--repetitions", type=int, default=40, help="designs for the coverage on Ishigami")
    parser.add_argument("--num-features", type=int, default=200, help="for each of the terms of the kernel")
    options = parser.parse_args()
    if options.plot:
        draw(options)
        return
    torch.set_default_dtype(torch.float64)
    few, some, many = (2, 2, 2) if options.quick else (5, 20, options.repetitions)
    plan = [("Ishigami", RUNS, many), ("g-function", RUNS, some), ("Ishigami", 64, few), ("Ishigami", 96, few)]
    plan += [("g-function", 64, few)]
    cells: list[tuple[str, Callable[[], Any]]] = []
    for name, base in itertools.product(FUNCTIONS, (2 ** np.arange(5, 7 if options.quick else 14)).tolist()):
        seeds = range(2 if options.quick else 20)
        key = f"saltelli/{name}/{base * (len(FUNCTIONS[name][2]) + 2)}"
        cells.append((key, lambda n=name, b=base, seeds=seeds: [by_saltelli(n, b, seed) for seed in seeds]))
    for name, runs, count in plan[:1] if options.quick else plan:
        seeds = range(FIRST_SEED, FIRST_SEED + count)
        key = f"model/{name}/{runs}"
        cells.append((key, lambda n=name, r=runs, seeds=seeds: [by_model(n, r, seed, options) for seed in seeds]))
    run_cells(
        options,
        cells,
        claims,
        truth={name: truth for name, (_, truth, _) in FUNCTIONS.items()},
        settings={"num_features": options.num_features, "first_seed": FIRST_SEED},
    )


if __name__ == "__main__":
    main()
