"""Evidence and gradient at constant memory: time against its floor and against a fit, and memory against N.

The floor is a Gram product, the product of the features with a (D, D) matrix, and the features twice, in float32. Every
measurement is a process of its own, in processor time; memory is the peak beside what was resident before.
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
from rfgp.linalg import add_gram_, row_chunks

DIMS, WIDTH = 8, 1024
ROWS = (100_000, 1_000_000)
WORK = ("features", "gram product", "product with a matrix", "fit", "evidence and gradient")
SECONDS = 3600.0


def functions(num_rows: int) -> dict[str, Callable[[], Any]]:
    """What is measured, on the same rows."""
    torch.manual_seed(0)
    x = torch.randn(num_rows, DIMS)
    y = torch.sin(x.sum(-1)) + 0.3 * torch.randn(num_rows)
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=DIMS))
    exact.base_kernel.lengthscale = 3.0
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = 0.1
    kernel = rfgp.approximate(exact, WIDTH, input_dim=DIMS, seed=0)
    model = rfgp.models.WeightSpaceGP(kernel, likelihood)
    chunks = row_chunks(num_rows, WIDTH, x.element_size())
    one, matrix = kernel.scalar_features(x[chunks[0]]).detach(), torch.randn(WIDTH, WIDTH)
    gram, cross = torch.zeros(WIDTH, WIDTH, dtype=torch.float64), torch.zeros(WIDTH, 1, dtype=torch.float64)
    targets, product = y[: len(one), None], torch.empty_like(one)

    def features() -> None:
        with torch.no_grad():
            for rows in chunks:
                kernel.scalar_features(x[rows])

    def grams() -> None:
        for rows in chunks:
            size = min(rows.stop, num_rows) - rows.start
            add_gram_(gram, cross, one[:size], targets[:size], None, torch.float32)

    def products() -> None:
        for rows in chunks:
            size = min(rows.stop, num_rows) - rows.start
            torch.mm(one[:size], matrix, out=product[:size])

    def fit() -> None:
        with torch.no_grad():
            model.condition(x, y)

    def gradient() -> None:
        model.condition(x, y).log_marginal_likelihood().backward()

    return dict(zip(WORK, (features, grams, products, fit, gradient), strict=True))


def measure(work: str, num_rows: int) -> dict[str, float]:
    """Seconds of processor time, and peak memory in MB beside what was there before, after a call on few rows."""
    functions(2000)[work]()
    function = functions(num_rows)[work]
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    function()
    seconds = time.process_time() - start
    return {"seconds": seconds, "mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024}


def summary(cells: dict[str, dict[str, float]]) -> dict[str, float]:
    """Ratios of evidence and gradient to its floor and to a fit, and its memory."""
    seconds = {work: cells[work]["seconds"] for work in WORK}
    floor = 2.0 * seconds["features"] + seconds["gram product"] + seconds["product with a matrix"]
    total = seconds["evidence and gradient"]
    return {"to floor": total / floor, "to fit": total / seconds["fit"], "mb": cells["evidence and gradient"]["mb"]}


def main() -> None:
    options = common.arguments(__doc__ or "", "gradient_memory").parse_args()
    result: dict[str, Any] = {"environment": common.environment(), "cells": {}, "summary": {}}
    for num_rows in (5_000, 10_000) if options.quick else ROWS:
        cells = {}
        for work in WORK:
            cells[work] = common.alone(measure, work, num_rows, seconds=SECONDS)
        result["cells"][str(num_rows)], result["summary"][str(num_rows)] = cells, summary(cells)
        common.write(options.out, result)
    common.show(result)


if __name__ == "__main__":
    main()
