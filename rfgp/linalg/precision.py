"""Which products are accurate enough in float32, and which matrices lose digits in float64."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .complex_numbers import real_part

FLOAT32_NOISE = 1e-2
"""Gram products are taken in float32 where the noise exceeds this share of the largest variance of the function."""

_SAMPLE = 64


def spaced_rows(rows: Tensor) -> Tensor:
    """At most a few hundred evenly spaced rows of (..., N, D), which stand for all of them.

    >>> spaced_rows(torch.randn(10_000, 2)).shape[0] < 1_000
    True
    """
    return rows.detach()[..., :: max(1, rows.shape[-2] // _SAMPLE), :]


def largest_square(features: Tensor) -> float:
    """The largest squared norm of the rows of features (..., N, D).

    >>> largest_square(torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
    25.0
    """
    return float(torch.linalg.vector_norm(features.detach(), dim=-1).max()) ** 2


def product_dtype(dtype: torch.dtype, noise: float, variance: Callable[[], float]) -> torch.dtype:
    r"""The dtype of Gram products: float64, or float32 for float32 features where the noise drowns their rounding.

    .. math:: B = I + \sum_i \overline{\phi_i} \phi_i^\top / s, \qquad s > 10^{-2} \max_i \|\phi_i\|^2

    :param dtype: the dtype of the features.
    :param noise: the smallest noise variance s.
    :param variance: gives the largest variance :math:`\|\phi_i\|^2`, output scale included, of some rows.

    >>> product_dtype(torch.float32, 0.1, lambda: 1.0), product_dtype(torch.float32, 0.1, lambda: 20.0)
    (torch.float32, torch.float64)
    """
    is_single = dtype.to_real() == torch.float32
    return torch.float32 if is_single and noise > FLOAT32_NOISE * variance() else torch.float64


def is_ill_conditioned(diagonal: Tensor) -> bool:
    """Whether half of the digits of float64 are lost to a matrix with this diagonal (..., D) and no eigenvalue below 1.

    >>> is_ill_conditioned(torch.tensor([1.0, 1e12]))
    True
    """
    return float(real_part(diagonal.detach()).max()) > torch.finfo(torch.float64).eps ** -0.5
