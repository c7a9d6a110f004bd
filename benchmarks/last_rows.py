"""The log densities of 6,000 rows given 8, 16, 32 and 64 near ones, with gradients: compiled, and by PyTorch.

Processor seconds of an evaluation as training makes it, with 8 inputs, their lengthscales, a scale, and the noise and
the mean of one output, or the concentration of the labels of several classes.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import common
import gpytorch
import torch

import rfgp
from rfgp.likelihoods import DirichletClassificationLikelihood
from rfgp.linalg import last_rows
from rfgp.training import CompositeLikelihood
from rfgp.training.near_rows import near_groups, searches
from rfgp.training.neighbors import NeighborObjective

ROWS, TARGETS, INPUTS, REPEATS = 12_000, 6_000, 8, 7
KERNELS = {"RBFKernel": gpytorch.kernels.RBFKernel, "MaternKernel": gpytorch.kernels.MaternKernel}
NEIGHBORS = (8, 16, 32, 64)
CLASSES = (2, 10)


def likelihood(kernel: str, classes: int, neighbors: int, rows: int, targets: int) -> CompositeLikelihood:
    """That of some rows of a model with default parameters, of classes or, where there are none, of one output."""
    torch.manual_seed(0)
    x = torch.randn(rows, INPUTS, dtype=torch.float64)
    y = x.sum(-1).sin() + 0.1 * torch.randn(rows, dtype=torch.float64)
    likelihood: gpytorch.likelihoods.Likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    mean: gpytorch.means.Mean = gpytorch.means.ConstantMean().double()
    if classes:
        y = (y.argsort().argsort() * classes) // rows
        likelihood = DirichletClassificationLikelihood(num_classes=classes)
        mean = gpytorch.means.ConstantMean(batch_shape=torch.Size([classes])).double()
    exact = gpytorch.kernels.ScaleKernel(KERNELS[kernel](ard_num_dims=INPUTS)).double()
    features = rfgp.approximate(exact, 16, method="landmarks", train_inputs=x[:100], seed=0)
    model = rfgp.WeightSpaceGP(features, likelihood, mean)
    groups = near_groups(searches(x), torch.arange(targets), neighbors)
    return CompositeLikelihood(NeighborObjective(model, x, y, None).observations(), groups, targets=1)


def measure(kernel: str, classes: int, neighbors: int, rows: int, targets: int) -> dict[str, Any]:
    """Median seconds of both, each in turn after one that does not count, and how far their values are apart."""
    objective, library = likelihood(kernel, classes, neighbors, rows, targets), last_rows._library
    if library is None:
        raise SystemExit("expected the compiled library, got an installation without it; install with a C++ compiler")
    ways = {"compiled": library, "PyTorch": None}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    values = {}
    for _ in range(1 + REPEATS):
        for name, way in ways.items():
            last_rows._library = way
            start = time.process_time()
            value = objective.evidence()
            value.backward()
            seconds[name].append(time.process_time() - start)
            values[name] = float(value.detach())
    last_rows._library = library
    medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}
    error = abs(values["compiled"] / values["PyTorch"] - 1.0)
    return {**medians, "ratio": medians["PyTorch"] / medians["compiled"], "relative difference": error}


def main() -> None:
    options = common.arguments(__doc__ or "", "last_rows").parse_args()
    rows, targets = (500, 100) if options.quick else (ROWS, TARGETS)
    cells = [
        (f"{kernel}, {neighbors}", lambda k=kernel, n=neighbors: measure(k, 0, n, rows, targets))
        for kernel in KERNELS
        for neighbors in NEIGHBORS
    ]
    cells += [
        (f"{classes} classes, {neighbors}", lambda c=classes, n=neighbors: measure("RBFKernel", c, n, rows, targets))
        for classes in CLASSES
        for neighbors in NEIGHBORS
    ]
    common.run_cells(options, cells, rows=targets, inputs=INPUTS)


if __name__ == "__main__":
    main()
