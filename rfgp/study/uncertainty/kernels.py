"""Products of one correlation for each input, whose averages over independent inputs are products, too."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

DEGREES = {"RBF": None, "Matern-5/2": 2.5, "Matern-3/2": 1.5}
"""The kernels among which the evidence chooses, with their smoothness."""


def correlation(kind: str, distance: Tensor) -> Tensor:
    """The correlation of one input at distances in lengthscales, of their shape."""
    if kind == "RBF":
        return torch.exp(-0.5 * distance.square())
    scaled = (2.0 * DEGREES[kind]) ** 0.5 * distance.abs()  # type: ignore[operator]
    polynomial = 1.0 + scaled if kind == "Matern-3/2" else 1.0 + scaled + scaled.square() / 3.0
    return polynomial * torch.exp(-scaled)


def correlations(kind: str, x: Tensor, z: Tensor, lengthscale: Tensor) -> Tensor:
    """The matrices (..., n, m) of rows (n, d) and (m, d), for lengthscales (..., d)."""
    result = torch.ones((), dtype=x.dtype)
    for k in range(x.shape[-1]):
        result = result * correlation(kind, (x[:, k, None] - z[:, k]) / lengthscale[..., k, None, None])
    return result


def frequencies(kind: str, num_waves: int, lengthscale: Tensor, generator: Generator) -> Tensor:
    """Draws (num_waves, d) of the spectral density: Student's t of 2 nu degrees for Matern, normal for the RBF."""
    shape = num_waves, len(lengthscale)
    normal = torch.randn(shape, generator=generator, dtype=lengthscale.dtype)
    if kind != "RBF":
        degrees = int(2.0 * DEGREES[kind])  # type: ignore[operator]
        squares = torch.randn(degrees, *shape, generator=generator, dtype=lengthscale.dtype).square().mean(0)
        normal = normal / squares.sqrt()
    return normal / lengthscale
