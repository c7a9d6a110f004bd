"""Intervals, and the quantiles of scores that give them their coverage in finite samples."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .. import _checks


class Interval(NamedTuple):
    """Intervals in the units of the targets.

    :param lower: the lower ends, (n,), or (n, T) for several outputs; minus infinity where there are too few rows.
    :param upper: the upper ends, of the same shape.

    >>> Interval(torch.zeros(3), torch.ones(3)).upper
    tensor([1., 1., 1.])
    """

    lower: Tensor
    upper: Tensor


def rank(count: int, level: float) -> int:
    """The rank ceil((n + 1) level) of the score that is a conformal quantile; above n there is none."""
    return math.ceil((count + 1) * level - 1e-9)


def quantile(scores: Tensor, level: float) -> Tensor:
    """The conformal quantile of scores (n,): the one of this rank, or infinity where there is none."""
    number = rank(len(scores), level)
    return scores.new_tensor(math.inf) if number > len(scores) else scores.kthvalue(number).values


def checked_level(level: float) -> float:
    """Return a level, or raise where it is not between 0 and 1."""
    known = _checks.positive("level", level, "choose a share between 0 and 1, such as 0.9")
    if known >= 1.0:
        raise ValueError(f"expected a level between 0 and 1, got {known:g}; choose a share, such as 0.9")
    return known


def columns(values: Tensor) -> Tensor:
    """Values (n,) or (n, T) as (n, T)."""
    return torch.atleast_1d(values).unsqueeze(-1) if values.dim() == 1 else values
