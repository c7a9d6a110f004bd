r"""Observations that are integrals: equality with a dense process by quadrature, and processor seconds beside it.

Rays, boxes, derivatives and values of a function in the plane, a quarter of the rows each. First, the dense process has
the features as its kernel, integrated by 24 Gauss-Legendre nodes in each direction and differentiated by formula, so
that mean and covariance of the posterior may differ by rounding alone. Second, processor seconds of a fit and
predictions with features, and of the matrix of the exact kernel, which is a quadrature, and its Cholesky factor.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from common import arguments, environment, write
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from torch import Tensor

import rfgp
from rfgp.functionals.observations import boxes, derivatives, points, segments, split
from rfgp.functionals.observations.quadrature import nodes
from rfgp.kernels import ObservationKernel
from rfgp.models import WeightSpaceGP

DIM, NUM_FEATURES, LENGTHSCALE = 2, 512, 0.4


def rows(count: int, seed: int) -> Tensor:
    """Rows of four kinds, about ``count`` in all."""
    a, b = torch.rand(2, count // 4, DIM, generator=torch.Generator().manual_seed(seed))
    return torch.cat([points(a), derivatives(a, b - 0.5), segments(a, b, integral=True), boxes(a, a + 0.2)])


def kernel() -> ObservationKernel:
    """The exact kernel."""
    function = ScaleKernel(RBFKernel())
    function.base_kernel.lengthscale = LENGTHSCALE
    return ObservationKernel(function, DIM)


def by_quadrature(approximate: Any, x: Tensor) -> Tensor:
    """Features of rows by quadrature of those of points, with the derivatives of cosines and sines."""
    waves = approximate.family.inner.waves(DIM)
    found = []
    for row in x:
        one = split(row[None], DIM)
        place, mass = nodes(one, 24)
        phase = place[0] @ waves.frequencies.mT
        cosine, sine = phase.cos(), phase.sin()
        slope, value = waves.frequencies @ one.weights[0, 1:], one.weights[0, 0]
        real, imaginary = value * cosine - slope * sine, value * sine + slope * cosine
        found.append(mass @ torch.cat([real * waves.factor.mT, imaginary * waves.factor.mT], dim=-1))
    return torch.stack(found)


def equality(count: int) -> dict[str, float]:
    """Relative differences of the posterior from that of a dense process."""
    x, new = rows(count, 0), rows(count // 2, 1)
    y, noise = torch.sin(3.0 * x[:, 0]) * split(x, DIM).weights[:, 0], torch.full((len(x),), 1e-2)
    approximate = rfgp.approximate(kernel(), NUM_FEATURES, seed=0)
    model = WeightSpaceGP(approximate, FixedNoiseGaussianLikelihood(noise)).condition(x, y, noise)
    posterior = model.posterior(new)
    left, right = by_quadrature(approximate, x), by_quadrature(approximate, new)
    factor = torch.linalg.cholesky(left @ left.mT + torch.diag(noise))
    half = torch.linalg.solve_triangular(factor, left @ right.mT, upper=False)
    mean = half.mT @ torch.linalg.solve_triangular(factor, y[:, None], upper=False)[:, 0]
    covariance = right @ right.mT - half.mT @ half
    return {
        "mean": float((posterior.mean - mean).abs().max() / mean.abs().max()),
        "covariance": float((posterior.covariance_matrix - covariance).abs().max() / covariance.abs().max()),
    }


def seconds(count: int, is_exact: bool) -> float:
    """Processor seconds of one fit with predictions, or of the exact matrix and its factor."""
    x, new = rows(count, 0), rows(400, 1)
    y, noise = torch.sin(3.0 * x[:, 0]), torch.full((len(x),), 1e-2)
    start = time.process_time()
    if is_exact:
        torch.linalg.cholesky(kernel()(x).to_dense() + torch.diag(noise))
    else:
        approximate = rfgp.approximate(kernel(), NUM_FEATURES, seed=0)
        model = WeightSpaceGP(approximate, FixedNoiseGaussianLikelihood(noise)).condition(x, y, noise)
        assert bool((model.posterior(new).variance > 0.0).all())
    return time.process_time() - start


@torch.no_grad()
def main() -> None:
    options: argparse.Namespace = arguments(__doc__ or "", "integrals").parse_args()
    torch.set_default_dtype(torch.float64)
    sizes = (40, 80) if options.quick else (100, 200, 400, 10_000, 100_000)
    result: dict[str, Any] = {"environment": environment(), "num_features": NUM_FEATURES, "cells": []}
    result["equality"] = equality(40 if options.quick else 200)
    print(f"relative difference from a dense process: {result['equality']}")
    seconds(40, False)  # the first call is slower
    for count in sizes:
        cell = {"rows": count, "features": seconds(count, False)}
        if count <= 400:
            cell["exact"] = seconds(count, True)
        result["cells"].append(cell)
        print(cell)
    write(options.out, result)


if __name__ == "__main__":
    main()
