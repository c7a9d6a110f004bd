"""What is left where statistics of some rows are subtracted from those of all."""

from __future__ import annotations

from torch import Tensor

from .target_sums import TargetSums

ROUNDING = 1e-5
"""How far below zero a difference of sums may lie, relative to the sum: products may be in float32."""
_COUNTING = 1e-9
"""Sums of weights, relative to those before, that count as none."""


def left_of(before: TargetSums, removed: TargetSums) -> tuple[TargetSums, Tensor]:
    """The difference of sums with one shift, and a mask (G,) of empty groups; a ValueError if it is not one of rows."""
    left = before.combined(removed, Tensor.sub)
    is_empty = left.num_rows.abs() <= _COUNTING * before.num_rows
    left = left.map(lambda sums: without_groups(sums, is_empty))
    if bool((left.num_rows < 0).any()):
        raise ValueError(
            "expected statistics of a subset of the rows to subtract, got more rows than there are; subtract rows that "
            "were added"
        )
    check_squares(*(sums.gram.detach().diagonal(dim1=-2, dim2=-1).real for sums in (before, left)))
    return left, is_empty


def without_groups(sums: Tensor, is_empty: Tensor) -> Tensor:
    """Sums (G, ...) with zeros in the groups without rows, (G,)."""
    return sums.masked_fill(is_empty.reshape(-1, *[1] * (sums.dim() - 1)), 0.0) if bool(is_empty.any()) else sums


def check_squares(before: Tensor, after: Tensor) -> None:
    """Raise a ValueError where sums of squares after a subtraction are not those of some of the rows."""
    if not bool((after.detach() >= -ROUNDING * before.detach()).all()):
        raise not_a_subset()


def not_a_subset() -> ValueError:
    """What to raise where statistics that are subtracted have rows which were never added."""
    return ValueError(
        "expected statistics of a subset of the rows to subtract, got others, which leave negative sums of squares; "
        "subtract what was added, with the same features and weights"
    )
