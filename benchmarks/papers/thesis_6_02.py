"""T Fig. 6.2: ridge regression of binarized Fashion-MNIST on simulated optical features and Fourier features."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from rfgp.features import OpticalFeatures, RandomFourier
from rfgp.features.optical import optical_kernel
from rfgp.study import datasets

from .item import Claim, Options

THRESHOLD, PENALTIES = 0.3, tuple(10.0**-k for k in range(1, 8))


def error(train: Tensor, test: Tensor, labels: Tensor, labels_test: Tensor, is_kernel: bool = False) -> float:
    """Test error with the penalty, relative to the mean of the diagonal, that is best on a tenth of the rows."""
    cut = int(0.9 * len(labels))
    best = min(PENALTIES, key=lambda p: _error(train[:cut], train[cut:], labels[:cut], labels[cut:], p, is_kernel))
    return _error(train, test, labels, labels_test, best, is_kernel)


def _error(train: Tensor, test: Tensor, labels: Tensor, held: Tensor, penalty: float, is_kernel: bool) -> float:
    targets = one_hot(labels, 10).to(train) - 0.1
    if is_kernel:
        train, test = train[:, : len(labels)], test[:, : len(labels)]
    system = train.clone() if is_kernel else train.mT @ train
    system.diagonal().add_(penalty * system.diagonal().mean())
    right = targets if is_kernel else train.mT @ targets
    weights = torch.cholesky_solve(right, torch.linalg.cholesky(system))
    return float(((test @ weights).argmax(-1) != held).double().mean())


@torch.no_grad()
def measure(options: Options) -> dict[str, Any]:
    rows, points, widths = (200, 100, (64, 256)) if options.quick else (4000, 2000, (256, 512, 1024, 2048))
    data = datasets.load("digits" if options.quick else "fashion_mnist", options.data_dir)
    top = data.x_train.max()
    x, x_test = ((part > THRESHOLD * top).double() for part in (data.x_train[:rows], data.x_test[:points]))
    y, y_test = data.y_train[:rows], data.y_test[:points]
    lengthscale = torch.pdist(x[:1000]).median()
    scale = x.square().sum(-1).mean().sqrt()
    cells: dict[str, dict[str, float]] = {"optical 2": {}, "optical 4": {}, "Fourier": {}}
    for width in widths:
        generator = torch.Generator().manual_seed(0)
        maps = {
            "optical 2": (OpticalFeatures(x.shape[-1], width, 2, generator=generator, dtype=torch.float64), scale),
            "optical 4": (OpticalFeatures(x.shape[-1], width, 4, generator=generator, dtype=torch.float64), scale),
            "Fourier": (RandomFourier(x.shape[-1], width, generator=generator, dtype=torch.float64), lengthscale),
        }
        for name, (features, unit) in maps.items():
            cells[name][str(width)] = error(features(x / unit), features(x_test / unit), y, y_test)
    limits = {}
    for name, exponent in (("optical 2", 2), ("optical 4", 4)):
        train, test = (optical_kernel(part / scale, x / scale, exponent) for part in (x, x_test))
        limits[name] = error(train, test, y, y_test, is_kernel=True)
    return {"rows": rows, "cells": cells, "limits": limits}


def claims(result: dict[str, Any]) -> list[Claim]:
    cells, limits = result["cells"], result["limits"]
    widths = list(cells["Fourier"])
    first, last = widths[0], widths[-1]
    shown = ", ".join(f"{name} {100 * c[first]:.1f} to {100 * c[last]:.1f} %" for name, c in cells.items())
    gaps = {name: [cells[name][w] - limit for w in (first, last)] for name, limit in limits.items()}
    gap = ", ".join(f"{name} {100 * g[0]:.1f} to {100 * g[1]:.1f} points" for name, g in gaps.items())
    return [
        Claim(
            "the error decreases with D",
            f"D = {first} to {last}: {shown}",
            all(c[last] < c[first] for c in cells.values()),
        ),
        Claim(
            "optical features with m = 4 converge more slowly than with m = 2",
            f"above their limits: {gap}",
            gaps["optical 4"][0] > gaps["optical 2"][0],
        ),
        Claim(
            "m = 4 outperforms m = 2 in the limit",
            f"limits {100 * limits['optical 4']:.1f} % and {100 * limits['optical 2']:.1f} %",
            limits["optical 4"] < limits["optical 2"],
        ),
    ]


CLAIMS = {"T Fig. 6.2": claims}
