"""Rows that are held by group."""

from __future__ import annotations

import torch
from torch import Tensor

from .subtraction import not_a_subset

_PENDING_ROWS = 8192


class HeldRows:
    """Rows of features (M, D) with the numbers of their groups (M,), sorted by group on demand."""

    def __init__(self, rows: Tensor, groups: Tensor) -> None:
        self._parts, self._is_sorted, self._num_new = [(rows, groups)], False, 0

    def add(self, rows: Tensor, groups: Tensor) -> None:
        """Add rows."""
        self._parts = [*(part for part in self._parts if len(part[1])), (rows, groups)]
        self._is_sorted, self._num_new = False, self._num_new + len(groups)

    @property
    def has_new(self) -> bool:
        """Whether rows came since they were sorted."""
        return self._num_new > 0

    @property
    def has_many_new(self) -> bool:
        """Whether so many rows came since they were sorted that it is time to look at them."""
        return self._num_new > max(_PENDING_ROWS, sum(len(groups) for _, groups in self._parts) // 2)

    def sorted(self) -> tuple[Tensor, Tensor]:
        """All rows, those of one group after those of another, and their groups."""
        if not self._is_sorted:
            rows, groups = (torch.cat(parts) for parts in zip(*self._parts, strict=True))
            if not bool((groups.diff() >= 0).all()):
                order = groups.argsort(stable=True)
                rows, groups = rows[order], groups[order]
            self._parts, self._is_sorted, self._num_new = [(rows, groups)], True, 0
        return self._parts[0]

    @property
    def square(self) -> float:
        """The sum of the squared moduli."""
        return sum(float(rows.detach().abs().double().square().sum()) for rows, _ in self._parts)

    @property
    def is_finite(self) -> bool:
        """Whether all rows are finite."""
        return all(bool(torch.isfinite(rows.detach()).all()) for rows, _ in self._parts)

    def counts(self, num_groups: int) -> Tensor:
        """How many rows of every group are held, (G,)."""
        return torch.bincount(self.sorted()[1], minlength=num_groups)

    def of_group(self, group: int) -> Tensor:
        """The rows of one group, (n, D)."""
        rows, groups = self.sorted()
        start, stop = torch.searchsorted(groups, torch.tensor([group, group + 1], device=groups.device)).tolist()
        return rows[start:stop]

    def of_others(self, groups: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of all groups but some, and their groups."""
        rows, names = self.sorted()
        if not len(groups):
            return rows, names
        is_left = ~torch.isin(names, groups)
        return rows[is_left], names[is_left]

    def without(self, removed: HeldRows) -> HeldRows:
        """These rows without others, each of which equals one of them but for rounding."""
        rows, names = self.sorted()
        is_left = torch.ones_like(names, dtype=torch.bool)
        for row, group in zip(*removed.sorted(), strict=True):
            is_left[_nearest(rows.detach(), row.detach(), is_left & (names == group))] = False
        return HeldRows(rows[is_left], names[is_left])


def _nearest(rows: Tensor, row: Tensor, is_candidate: Tensor) -> int:
    """The number of the candidate among rows (n, D) that equals a row (D,) but for rounding; a ValueError for none."""
    numbers = is_candidate.nonzero().squeeze(-1)
    distances = torch.linalg.vector_norm(rows[numbers] - row, dim=-1)
    allowed = torch.finfo(distances.dtype).eps ** 0.5 * torch.linalg.vector_norm(row)
    if not len(numbers) or bool(distances.min() > allowed):
        raise not_a_subset()
    return int(numbers[distances.argmin()])
