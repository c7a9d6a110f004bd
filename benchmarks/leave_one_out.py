"""Leave-one-out log densities and the pseudo-likelihood with its gradient: weight space against GPyTorch's dense class.

Processor seconds, each in a process of its own, and the peak memory beside what was there before.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import common
import gpytorch
import torch

import rfgp

DIMS, WIDTH = 8, 512
ROWS = (2_000, 100_000)
WORK = ("fit", "fit and leave one out", "pseudo-likelihood", "pseudo-likelihood of GPyTorch")
SECONDS = 900.0


class Model(gpytorch.models.ExactGP):
    """A model with features."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: Any, kernel: Any) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), kernel

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def functions(num_rows: int) -> dict[str, Callable[[], Any]]:
    """What is measured, on the same rows."""
    torch.manual_seed(0)
    x = torch.randn(num_rows, DIMS, dtype=torch.float64)
    y = torch.sin(x.sum(-1)) + 0.3 * torch.randn(num_rows, dtype=torch.float64)
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
    exact.base_kernel.lengthscale = 3.0
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.1
    kernel = rfgp.approximate(exact, WIDTH, input_dim=DIMS, seed=0)
    model = rfgp.WeightSpaceGP(kernel, likelihood)
    prior = Model(x, y, likelihood, kernel).double()

    def fit() -> None:
        with torch.no_grad():
            model.condition(x, y).weight_posterior()

    def leave_one_out() -> None:
        fit()
        model.leave_one_out(x, y)

    def objective(kind: type) -> Callable[[], None]:
        return lambda: kind(likelihood, prior)(prior(x), y).backward()

    own, theirs = rfgp.training.LeaveOneOutPseudoLikelihood, gpytorch.mlls.LeaveOneOutPseudoLikelihood
    return dict(zip(WORK, (fit, leave_one_out, objective(own), objective(theirs)), strict=True))


def measure(work: str, num_rows: int) -> dict[str, float]:
    """Seconds of processor time, and peak memory in MB beside what was there before, after a call on few rows."""
    functions(1000)[work]()
    function = functions(num_rows)[work]
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    function()
    seconds = time.process_time() - start
    return {"seconds": seconds, "mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024}


def main() -> None:
    parser = common.arguments(__doc__ or "", "leave_one_out")
    parser.add_argument("--one", nargs=2, metavar=("WORK", "ROWS"), help="one measurement in this process")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], int(options.one[1]))))
        return
    result: dict[str, Any] = {"environment": common.environment(), "cells": {}}
    for num_rows in (1_000,) if options.quick else ROWS:
        cells = {}
        for work in WORK:
            command = [sys.executable, "-W", "ignore", __file__, "--one", work, str(num_rows)]
            cells[work] = common.in_process(command, SECONDS)
            print(num_rows, work, cells[work], flush=True)
        result["cells"][str(num_rows)] = cells
        common.write(options.out, result)


if __name__ == "__main__":
    main()
