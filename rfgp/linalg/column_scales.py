"""Scales of columns as rows of a matrix: mean, scale and, for columns with heavy tails, where these are compressed."""

from __future__ import annotations

import torch
from torch import Tensor


def standardized(x: Tensor, scales: Tensor) -> Tensor:
    r"""Columns (N, d) less means over scales, and their tails by their logarithm.

    .. math:: z = (x - m) / s, \qquad z \mapsto \mathrm{sign}(z)\, c\, (1 + \log(|z| / c)) \quad \text{for } |z| > c

    :param scales: m, s and, if there is a third row, c, (2, d) or (3, d); an infinite c compresses nothing.

    >>> scales = torch.tensor([[1.0], [2.0], [3.0]])
    >>> standardized(torch.tensor([[5.0], [2e6 + 1.0]]), scales).tolist()
    [[2.0], [41.15069580078125]]
    """
    z = (x - scales[0]) / scales[1]
    return z if len(scales) < 3 else compressed(z, scales[2])


def in_units(z: Tensor, scales: Tensor) -> Tensor:
    """The inverse of :func:`standardized`."""
    return (z if len(scales) < 3 else expanded(z, scales[2])) * scales[1] + scales[0]


def compressed(z: Tensor, limit: Tensor) -> Tensor:
    """Values as they are up to a limit, and behind it by their logarithm; continuous with its slope."""
    ratio, finite = z.abs() / limit, limit.nan_to_num(posinf=0.0)
    return torch.where(ratio > 1.0, z.sign() * finite * (1.0 + ratio.clamp_min(1.0).log()), z)


def expanded(z: Tensor, limit: Tensor) -> Tensor:
    """The inverse of :func:`compressed`."""
    ratio, finite = z.abs() / limit, limit.nan_to_num(posinf=0.0)
    return torch.where(ratio > 1.0, z.sign() * finite * (ratio.clamp_min(1.0) - 1.0).exp(), z)
