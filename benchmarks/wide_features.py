"""More features than a Gram matrix can have: the mean by conjugate gradients against a direct solution, on a table.

Every measurement is a process of its own, in processor time; memory is the peak beside what was resident before.
Parameters are fixed: those of a Gaussian kernel found on kin8nm, or plausible ones for another table.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

import common
import gpytorch
import numpy as np
import torch

import rfgp

NARROW, RANK, NOISE, LENGTHSCALE, OUTPUTSCALE = 1024, 1024, 0.05, 2.5, 1.0
TEST_SHARE = 0.1
WORK = ({"direct": 2048}, {"cg": 2048}, {"cg": 8192}, {"cg": 16384})
SECONDS = 1800.0


def split(path: str, limit: int) -> tuple[torch.Tensor, ...]:
    """Standardized float32 rows: training inputs and targets, at most so many, and test inputs and targets."""
    with np.load(path) as archive:
        x, y = (torch.from_numpy(archive[key]).double() for key in ("x", "y"))
    x, y = (x - x.mean(0)) / x.std(0), (y.reshape(-1) - y.mean()) / y.std()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    test, train = order[: int(TEST_SHARE * len(x))], order[int(TEST_SHARE * len(x)) :][:limit]
    return x[train].float(), y[train].float(), x[test].float(), y[test].float()


def model(work: str, width: int, input_dim: int) -> Any:
    """The model of a measurement."""
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    exact.base_kernel.lengthscale, exact.outputscale = LENGTHSCALE, OUTPUTSCALE
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = NOISE
    kernel = rfgp.approximate(exact, width, input_dim=input_dim, seed=0)
    if work == "direct":
        return rfgp.models.WeightSpaceGP(kernel, likelihood)
    narrow = rfgp.approximate(exact, min(NARROW, width), input_dim=input_dim, seed=1)
    return rfgp.models.WideWeightSpaceGP(kernel, likelihood, narrow_kernel=narrow, preconditioner_rank=RANK)


@torch.no_grad()
def measure(path: str, limit: int, work: str, width: int) -> dict[str, float]:
    """Seconds, memory, RMSE and NLPD, and for conjugate gradients their convergence."""
    x, y, x_test, y_test = split(path, limit)
    model("cg", 64, x.shape[-1]).condition(x[:2000], y[:2000], progress=False).posterior(x_test[:10])
    wanted = model(work, width, x.shape[-1])
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    posterior = wanted.condition(x, y).posterior(x_test)
    error = posterior.mean - y_test
    fitted = time.process_time() - start
    variance = posterior.variance + NOISE
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    cell = {
        "rows": len(x),
        "seconds of the mean": fitted,
        "mb": peak,
        "rmse": float(error.square().mean().sqrt()),
        "nlpd": float(0.5 * (error.square() / variance + variance.log() + np.log(2 * np.pi)).mean()),
    }
    if work == "cg":
        cell |= wanted.convergence._asdict()
    return cell


def main() -> None:
    parser = common.arguments(__doc__ or "", "wide_features")
    common.add_data_dir(parser)
    parser.add_argument("--name", default="kin8nm", help="the table, an archive with x and y")
    parser.add_argument("--rows", type=int, default=10**9, help="the largest number of training rows")
    parser.add_argument("--one", nargs=2, metavar=("WORK", "WIDTH"), help="one measurement in this process")
    options = parser.parse_args()
    limit = 1000 if options.quick else options.rows
    path = str(options.data_dir / f"{options.name}.npz")
    if options.one:
        print(json.dumps(measure(path, limit, options.one[0], int(options.one[1]))))
        return
    result: dict[str, Any] = {"environment": common.environment(), "cells": {}}
    rows = []
    for work, width in (pair for known in WORK for pair in known.items()):
        size = width // 16 if options.quick else width
        command = [
            sys.executable,
            "-W",
            "ignore",
            __file__,
            "--data-dir",
            str(options.data_dir),
            "--name",
            options.name,
        ]
        command += ["--rows", str(limit), "--one", work, str(size)]
        cell = common.in_process(command, SECONDS)
        print(work, size, cell, flush=True)
        result["cells"][f"{options.name} {work} {size}"] = cell
        common.write(options.out, result)
        names = ("seconds of the mean", "mb", "num_iterations", "residual", "rmse", "nlpd")
        rows.append([work, str(size), *(f"{cell[name]:.3g}" if name in cell else "" for name in names)])
    header = ["solution", "features", "seconds", "peak memory, MB", "iterations", "residual", "RMSE", "NLPD"]
    print(common.markdown(header, rows))


if __name__ == "__main__":
    main()
