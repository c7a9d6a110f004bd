"""All leave-one-out densities, and those of ten folds, of many rows against one fit to them.

Processor seconds and peak memory of a process of its own for each dtype; some rows are compared with refits.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import common
import gpytorch
import torch

import rfgp

DIMS, WIDTH, ROWS, FOLDS = 8, 1024, 200_000, 10
DTYPES = ("float64", "float32")
SECONDS = 10_000.0


def problem(num_rows: int, width: int, dtype: torch.dtype) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """An unfitted model, inputs and targets."""
    torch.manual_seed(0)
    x = torch.randn(num_rows, DIMS, dtype=dtype)
    y = torch.sin(x.sum(-1)) + 0.3 * torch.randn(num_rows, dtype=dtype)
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).to(dtype)
    exact.base_kernel.lengthscale = 3.0
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(dtype)
    likelihood.noise = 0.1
    return rfgp.WeightSpaceGP(rfgp.approximate(exact, width, input_dim=DIMS, seed=0), likelihood), x, y


def timed(function: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Processor and wall seconds of a call, and what it returns."""
    wall, start = time.perf_counter(), time.process_time()
    result = function()
    return {"seconds": time.process_time() - start, "wall_seconds": time.perf_counter() - wall}, result


@torch.no_grad()
def measure(dtype: str, num_rows: int, width: int) -> dict[str, Any]:
    """What a fit and leaving out cost, and how far means are from those of refits."""
    model, x, y = problem(num_rows, width, getattr(torch, dtype))
    model.condition(x[:2000], y[:2000]).leave_one_out(x[:2000], y[:2000])
    fit, _ = timed(lambda: model.condition(x, y).weight_posterior())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    one, found = timed(lambda: model.leave_one_out(x, y))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    groups, _ = timed(lambda: model.leave_group_out(x, y, FOLDS))
    error = 0.0
    for row in range(3):
        own = slice(row, row + 1)
        without = model.downdate(x[own], y[own]).posterior(x[own])
        error = max(error, float((without.mean - found.mean[own]).abs() / found.variance[own].sqrt()))
        model.update(x[own], y[own])
    return {
        "fit": fit,
        "leave_one_out": one,
        "ten_folds": groups,
        "ratio": one["seconds"] / fit["seconds"],
        "ratio_of_folds": groups["seconds"] / fit["seconds"],
        "mb_of_fit": before,
        "mb": peak,
        "largest_error_in_deviations": error,
    }


def main() -> None:
    parser = common.arguments(__doc__ or "", "leave_out_scale")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--features", type=int, default=WIDTH)
    options = parser.parse_args()
    num_rows, width = (5_000, 64) if options.quick else (options.rows, options.features)
    cells = [(dtype, lambda d=dtype: common.alone(measure, d, num_rows, width, seconds=SECONDS)) for dtype in DTYPES]
    common.run_cells(options, cells, rows=num_rows, features=width)


if __name__ == "__main__":
    main()
