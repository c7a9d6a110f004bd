"""B Fig. 5: largest operator-norm error of three operator-valued kernels on [-1, 1]^4 against the frequencies."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import RBFKernel

import rfgp
from rfgp.kernels import ConstantCovariance, CurlFreeKernel, DecomposableKernel, DivergenceFreeKernel

from .item import Claim, Options

DIM = 4


@torch.no_grad()
def measure(options: Options) -> dict[str, Any]:
    points, widths, seeds = (15, (50, 200), 1) if options.quick else (40, (30, 100, 300, 1000, 3000), 5)
    root = torch.randn(DIM, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    base = RBFKernel().double()
    base.lengthscale = 1.0
    kernels = {
        "decomposable": DecomposableKernel(
            base, ConstantCovariance(root @ root.mT / DIM + 0.1 * torch.eye(DIM).double())
        ),
        "curl-free": CurlFreeKernel(base),
        "divergence-free": DivergenceFreeKernel(base),
    }
    cells: dict[str, list[float]] = {}
    for seed in range(seeds):
        generator = torch.Generator().manual_seed(seed)
        x = 2.0 * torch.rand(points, DIM, generator=generator, dtype=torch.float64) - 1.0
        for name, exact in kernels.items():
            target = exact(x).to_dense()
            for width in widths:
                kernel = rfgp.approximate(exact, 2 * width, input_dim=DIM, method="fourier", seed=seed)
                phi = kernel.features(x)
                gap = (phi @ phi.mT - target).reshape(points, DIM, points, DIM).transpose(1, 2)
                largest = float(torch.linalg.matrix_norm(gap, 2).max())
                cells.setdefault(f"{name}/{width}", []).append(largest)
    return {"widths": widths, "cells": cells}


def claims(result: dict[str, Any]) -> list[Claim]:
    widths = result["widths"]
    slopes = {}
    for name in ("decomposable", "curl-free", "divergence-free"):
        means = [statistics.fmean(result["cells"][f"{name}/{width}"]) for width in widths]
        slopes[name] = float(np.polyfit(np.log(widths), np.log(means), 1)[0])
    shown = ", ".join(f"{name} {slope:.2f}" for name, slope in slopes.items())
    return [
        Claim(
            "all three kernels have the same convergence rate, up to a factor",
            f"exponents of D: {shown}",
            max(slopes.values()) - min(slopes.values()) < 0.1,
        ),
        Claim(
            "which is that of a Monte Carlo mean, -1/2",
            f"exponents of D: {shown}",
            all(abs(s + 0.5) < 0.1 for s in slopes.values()),
        ),
    ]


CLAIMS = {"B Fig. 5": claims}
