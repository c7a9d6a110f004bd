"""What the bounds share: checks of numbers, and rounding up to whole numbers of columns."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from .. import _checks

_MOST_FEATURES = 2**53  # beyond, float64 does not know every integer


positive = _checks.positive


def probability(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise where it is not between 0 and 1."""
    number = _checks.number(value)
    if not 0.0 < number < 1.0:
        raise ValueError(f"expected a number between 0 and 1 for {name}, got {value!r}; choose another {name}")
    return number


def within(name: str, value: Any, smallest: float) -> Tensor:
    """Return ``value`` as a float64 tensor, or raise where it has entries outside of [smallest, 1]."""
    tensor = _checks.real_tensor(value, name).double()
    rounding = 1e-6  # of kernel values in single precision
    if not bool(((tensor >= smallest - rounding) & (tensor <= 1.0 + rounding)).all()):
        raise ValueError(
            f"expected numbers from {smallest:g} to 1 for {name}, got {float(tensor.min()):g} to "
            f"{float(tensor.max()):g}; divide by k(0), or by its square where it is a variance"
        )
    return tensor.clamp(smallest, 1.0)


def frequencies(num_features: Any) -> int:
    """The number of frequencies behind that many cos and sin columns, or raise where it is no whole number."""
    columns = _checks.positive_integer("num_features", num_features)
    if columns % 2:
        raise ValueError(
            f"expected an even num_features, a cos and a sin column for each frequency, got {columns}; add one"
        )
    return columns // 2


def rounded_up(needed: Tensor) -> Tensor:
    """The smallest positive integers from ``needed`` up."""
    if not bool((needed < _MOST_FEATURES / 2).all()):
        raise ValueError(_too_many(float(needed.max())))
    return needed.ceil().clamp_min(1.0).long()


def even(needed: float) -> int:
    """Twice the smallest positive integer from ``needed`` up."""
    if not needed < _MOST_FEATURES / 2:
        raise ValueError(_too_many(needed))
    return 2 * max(1, math.ceil(needed))


def _too_many(needed: float) -> str:
    return f"expected an epsilon and a delta that 2^53 features can reach, got a need of {needed:g}; choose larger ones"
