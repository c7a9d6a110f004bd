"""Ratios of the variances of two sketches over pairs of rows, which several figures of T show."""

from __future__ import annotations

import torch
from torch import Tensor

from rfgp.features import polynomial_sketch


def variances(method: str, form: str, width: int, degree: int, x: Tensor) -> Tensor:
    """The variance of the kernel estimate for every pair of different rows."""
    sketch = polynomial_sketch(
        method, form, x.shape[-1], width, degree, torch.Generator().manual_seed(0), torch.float64
    )
    moments = sketch.moments(x.double(), x.double())
    assert moments is not None
    return off_diagonal(moments.variance)


def drawn_variances(method: str, width: int, degree: int, x: Tensor, draws: int) -> Tensor:
    """The same, estimated from draws of the weights around the exact kernel, for sketches without closed form."""
    sketch = polynomial_sketch(method, "real", x.shape[-1], width, degree, torch.Generator().manual_seed(0))
    exact = sketch.target(x, x)
    total = torch.zeros_like(exact)
    for seed in range(draws):
        features = sketch.resample(torch.Generator().manual_seed(seed))(x)
        total += (features @ features.mT - exact).square()
    return off_diagonal(total / draws)


def off_diagonal(matrix: Tensor) -> Tensor:
    """The entries of the upper triangle, without the diagonal."""
    return matrix[tuple(torch.triu_indices(*matrix.shape, offset=1))]


def summary(ratios: Tensor) -> dict[str, float]:
    """Quantiles of the ratios, and the share that is below one."""
    quantiles = torch.quantile(ratios[:1_000_000].double(), torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64))
    low, median, high = quantiles.tolist()
    return {
        "5 %": low,
        "median": median,
        "95 %": high,
        "largest": float(ratios.max()),
        "below 1": float((ratios < 1.0).double().mean()),
    }
