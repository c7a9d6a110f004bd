"""Sums over rows that involve the targets, by group, and what is left where some are subtracted."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class TargetSums(NamedTuple):
    """Weighted sums of features and K targets, less a shift s, and of a column of ones, in G groups, in float64.

    :param cross: products of features and columns, (G, D, K + 1).
    :param gram: products of columns, (G, K + 1, K + 1).
    :param num_rows: the numbers of rows, (G,).
    :param log_noise: the sums of log noise variances, (G,).
    :param shift: s, (K,).
    """

    cross: Tensor
    gram: Tensor
    num_rows: Tensor
    log_noise: Tensor
    shift: Tensor

    @classmethod
    def zeros(cls, num_features: int, num_groups: int, feature_dtype: torch.dtype, shift: Tensor) -> TargetSums:
        """Sums without rows."""
        columns, device = len(shift) + 1, shift.device
        cross_dtype = torch.promote_types(feature_dtype, shift.dtype)
        cross = torch.zeros(num_groups, num_features, columns, dtype=cross_dtype, device=device)
        num_rows = torch.zeros(num_groups, dtype=torch.float64, device=device)
        return TargetSums(cross, shift.new_zeros(num_groups, columns, columns), num_rows, num_rows.clone(), shift)

    def of_combination(self, coefficients: Tensor) -> tuple[Tensor, Tensor]:
        """Cross products (G, D, C) and Gram matrices (G, C, C) of combinations (K, C) or (G, K, C) of the targets."""
        columns = coefficients.to(self.shift.dtype)
        with_ones = torch.cat([columns, self.shift.unsqueeze(0) @ columns], dim=-2)
        return self.cross @ with_ones.to(self.cross.dtype), with_ones.mH @ self.gram @ with_ones

    def squares(self, coefficients: Tensor) -> Tensor:
        """The squares (G, C) of combinations (K, C) of the targets: the diagonals of their Gram matrices."""
        columns = coefficients.to(self.shift.dtype)
        with_ones = torch.cat([columns, self.shift.unsqueeze(0) @ columns], dim=-2)
        return (with_ones.conj() * (self.gram @ with_ones)).sum(-2)

    def take(self, groups: slice) -> TargetSums:
        """The sums of some groups."""
        return self.map(lambda sums: sums[groups])

    def of_targets(self) -> tuple[Tensor, Tensor]:
        """Cross products (G, D, K) and Gram matrices (G, K, K) of the targets themselves."""
        return self.of_combination(torch.eye(len(self.shift), dtype=self.shift.dtype, device=self.shift.device))

    @property
    def variances(self) -> Tensor:
        """The weighted variances of the targets, (G, K); zero for targets that are all alike."""
        square = self.gram.diagonal(dim1=-2, dim2=-1).real[:, :-1]
        total, weight = self.gram[:, -1, :-1].abs().square(), self.gram[:, -1:, -1].real.clamp_min(1e-300)
        spread = square - total / weight
        return torch.where(spread > 1e-12 * square, spread, 0.0) / weight

    def mean(self, observed: Tensor | None = None) -> Tensor:
        """The weighted mean of the targets over all groups, (K,), from the observed ones, (G, T); default: all."""
        weights = self.gram[:, -1:, -1].real.expand(-1, len(self.shift)).clone()
        totals = self.gram[:, -1, :-1].detach()
        if observed is not None:
            weights[:, : observed.shape[-1]] *= observed
            totals = totals * (weights > 0)
        return self.shift + totals.sum(0) / weights.detach().sum(0).clamp_min(1e-300)

    def shifted(self, shift: Tensor) -> TargetSums:
        """The same sums with another shift."""
        change = torch.eye(len(shift) + 1, dtype=self.shift.dtype, device=self.shift.device)
        change[-1, :-1] = self.shift - shift
        cross = self.cross @ change.to(self.cross.dtype)
        return self._replace(cross=cross, gram=change.mH @ self.gram @ change, shift=shift)

    def of_observed(self, observed: Tensor) -> TargetSums:
        """The sums with zeros for targets that are not observed, by a mask (G, T)."""
        mask = torch.nn.functional.pad(observed, (0, len(self.shift) + 1 - observed.shape[-1]), value=True)
        gram = self.gram * mask.unsqueeze(-1) * mask.unsqueeze(-2)
        return self._replace(cross=self.cross * mask.unsqueeze(-2), gram=gram)

    def combined(self, other: TargetSums, operation: Callable[[Tensor, Tensor], Tensor]) -> TargetSums:
        """Sums and differences with those of the same shift."""
        return TargetSums._make([*map(operation, self[:4], other[:4]), self.shift])

    def map(self, change: Callable[[Tensor], Tensor]) -> TargetSums:
        """The same with all sums changed, and the shift as it is."""
        return TargetSums._make([*map(change, self[:4]), self.shift])


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
