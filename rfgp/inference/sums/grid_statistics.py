"""Sufficient statistics of the features of a frequency grid, whose Gram matrix is a function of differences."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor

from ..._support import checks
from ..._support.ranks import Ranks
from ...linalg.exponential_sums import exponential_sums, has_fft
from ...linalg.frequency_grid import FrequencyGrid, cross_of_lags, gram_of_lags, head_of_gram, lag_half
from ..statistics_checks import check_lags
from .row_gradients import Pairs, RowGradients
from .rows import Part, Rows
from .statistics import GramStatistics, of_grams
from .subtraction import check_squares, without_groups
from .sufficient_statistics import SufficientStatistics
from .target_sums import TargetSums

_ROWS_AT_ONCE = {True: 2**18, False: 2**13}
"""How many rows are added at once, with a non-uniform FFT and without."""
_ORDERS_AT_ONCE = 2000
"""For so many frequencies a matrix is formed where sums are looked at."""


class GridStatistics(SufficientStatistics):
    r"""The sums of :class:`GramStatistics` for the features of a :class:`FrequencyGrid`, at O(N + L log L).

    .. math:: G_g(k) = \sum_{i \in g} w_i \exp(-\mathrm{i} k^\top \theta_i)

    for all differences k of frequencies, by the real and minus the imaginary part, (G, 2, L). Rows are added by their
    phases (N, d).
    """

    feature_sums: ClassVar[tuple[str, ...]] = ("lags", "orders")
    differentiable_sums: ClassVar[tuple[str, ...]] = ("lags", "cross", "target_gram", "log_noise")
    shared_sums: ClassVar[tuple[str, ...]] = ("orders",)

    @classmethod
    def of_grid(cls, grid: FrequencyGrid, num_groups: int, shift: Tensor) -> GridStatistics:
        """Statistics without rows."""
        lags = torch.zeros(num_groups, 2, _size(grid.orders), dtype=torch.float64, device=shift.device)
        targets = TargetSums.zeros(grid.num_features, num_groups, torch.float64, shift)
        return cls.made(targets, {"lags": lags, "orders": grid.orders.to(shift.device)})

    @staticmethod
    def _no_features(none: Tensor, num_groups: int) -> dict[str, Tensor]:
        raise ValueError("expected a frequency grid for its statistics, got a number of features; use of_grid")

    def _hold_features(self, sums: dict[str, Tensor]) -> None:
        self._lags, self.orders = sums["lags"], sums["orders"]
        width = 2 * len(self.orders) + 1
        self._gram = self._lags.new_zeros(0, width, width)
        self._dense: Tensor | None = None

    def _features(self) -> dict[str, Tensor]:
        return {"lags": self._lags, "orders": self.orders}

    def _features_with(self, other: Self) -> dict[str, Tensor]:
        return self._features() | {"lags": self._lags + other._lags}

    def _features_without(self, other: Self, is_empty: Tensor) -> dict[str, Tensor]:
        left = without_groups(self._lags - other._lags, is_empty)
        middle = left.shape[-1] // 2
        check_squares(*(lags[:, :1, middle : middle + 1] for lags in (self._lags, left)))
        return self._features() | {"lags": left}

    def _features_scaled(self, factor: float) -> dict[str, Tensor]:
        return self._features() | {"lags": factor * self._lags}

    def _features_of(self, ranks: Ranks) -> dict[str, Tensor]:
        lags = self._lags.contiguous()
        ranks.sum_([lags])
        return self._features() | {"lags": lags}

    @classmethod
    def of(cls, other: SufficientStatistics) -> GridStatistics:
        if not isinstance(other, GridStatistics):
            raise ValueError(
                f"expected statistics of a frequency grid, got {type(other).__name__}; combine like with like"
            )
        return other

    @classmethod
    def _check_state(cls, state: dict[str, Tensor]) -> None:
        check_lags(state, _size)

    @property
    def lags(self) -> Tensor:
        """The sums of cosines and sines of all differences of frequencies, (G, 2, L)."""
        return self._lags

    @property
    def gram(self) -> Tensor:
        """The Gram matrices, (G, D, D)."""
        what = f"Gram matrices of {self.num_features} x {self.num_features} numbers"
        checks.fits_in_memory(24.0 * len(self._lags) * self.num_features**2, what, "use fewer features")
        if self._lags.requires_grad:
            return gram_of_lags(self._lags, self.orders)
        if self._dense is None:
            self._dense = gram_of_lags(self._lags, self.orders)
        return self._dense

    @property
    def trace(self) -> float:
        middle = self._lags.shape[-1] // 2
        return self.num_features * float(self._lags.detach()[:, 0, middle].sum())

    @property
    def is_finite(self) -> bool:
        parts = self._lags.detach(), self.targets.cross.detach(), self.targets.gram.detach()
        return all(bool(torch.isfinite(part).all()) for part in parts)

    def of_group(self, group: int) -> GridStatistics:
        part = slice(group, group + 1)
        targets = self.targets.map(lambda sums: sums[part])
        return self.made(targets, self._features() | {"lags": self._lags[part]})

    def pooled(self) -> GridStatistics:
        lags = self._lags.sum(0, keepdim=True)
        return self.made(self.targets.map(lambda sums: sums.sum(0, keepdim=True)), self._features() | {"lags": lags})

    def empty_group(self) -> GridStatistics:
        lags = torch.zeros_like(self._lags[:1])
        targets = self.targets.map(lambda sums: torch.zeros_like(sums[:1]))
        return self.made(targets, self._features() | {"lags": lags})

    def add(self, features: Tensor, rows: Rows, product_dtype: torch.dtype = torch.float64) -> Self:
        """Add rows by their phases, (n, d)."""
        added = self._of_rows(features, rows)
        self.targets = self.targets.combined(added.targets, torch.add)
        self._hold_features(self._features_with(added))
        return self

    def _of_rows(self, phases: Tensor, rows: Rows) -> Self:
        """The statistics of some rows, differentiable."""
        shift, num_groups = self.shift, rows.num_groups
        lags = torch.zeros_like(self._lags[:1]).expand(num_groups, -1, -1)
        cross, target_gram, count, log_noise, _ = self.targets.map(
            lambda sums: torch.zeros_like(sums[:1]).expand(num_groups, *sums.shape[1:])
        )
        for group, members, part in rows.by_group():
            columns = part.with_ones(shift)
            weighted = columns if part.weights is None else columns * part.weights.double().unsqueeze(-1)
            of_ones, of_targets = _waves(phases[members], weighted, self.orders)
            squares = weighted.mH @ columns
            rows_of_group = count.new_full((1,), len(columns))
            noise = log_noise[:1] if part.log_noise is None else part.log_noise.double().sum().reshape(1)
            lags, cross, target_gram, count, log_noise = (
                _placed(old, group, new)
                for old, new in (
                    (lags, of_ones),
                    (cross, of_targets.unsqueeze(0)),
                    (target_gram, squares.unsqueeze(0)),
                    (count, rows_of_group),
                    (log_noise, noise),
                )
            )
        targets = TargetSums(cross, target_gram, count, log_noise, shift)
        return self._with_targets(targets, self._features() | {"lags": lags})

    def is_part_of(self, whole: SufficientStatistics) -> bool:
        return self._head().is_part_of(self.of(whole)._head())

    def _head(self) -> GramStatistics:
        """The statistics of the features of the first orders, which are all but for very wide grids."""
        numbers, gram = head_of_gram(self._lags, self.orders, _ORDERS_AT_ONCE)
        return of_grams(gram, self.targets._replace(cross=self.targets.cross[:, numbers]))

    def chunks(self, rows: Rows, itemsize: int) -> list[Part]:
        """Chunks of rows, which are large where a non-uniform FFT adds them."""
        size = _ROWS_AT_ONCE[has_fft()]
        if rows.groups is None:
            count = len(rows.targets)
            return [slice(start, min(start + size, count)) for start in range(0, count, size)]
        blocks = [(rows.groups == group).nonzero().squeeze(-1) for group in range(rows.num_groups)]
        return [part for members in blocks if len(members) for part in members.split(size)]

    def row_gradients(self, product_dtype: torch.dtype) -> Callable[[Sequence[Tensor]], RowGradients]:
        return functools.partial(GridRowGradients, self.of_group(0))

    @classmethod
    def check_memory(cls, width: int, num_groups: int, num_rows: int, itemsize: int) -> None:
        GramStatistics.check_memory(width, num_groups, num_rows, itemsize)


class GridRowGradients:
    """Takes phases and rows of a chunk, and returns their sums, with their graph, with the gradient of each."""

    def __init__(self, like: GridStatistics, gradients: Sequence[Tensor]) -> None:
        self.like, self.gradients = like, gradients

    def __call__(self, features: Tensor, rows: Rows, positions: Tensor | None) -> Pairs:
        return [*zip(self.like._of_rows(features, rows).differentiable(), self.gradients, strict=True)]


def _waves(phases: Tensor, columns: Tensor, orders: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of cosines and sines times the last of some columns (n, K), (1, 2, L), and of features times all, (D, K)."""
    parts = torch.view_as_real(columns).flatten(-2) if columns.is_complex() else columns
    sums = exponential_sums(phases, parts, lag_half(orders)).flatten(1)
    waves = torch.stack([sums.real, -sums.imag], dim=1)
    cross = cross_of_lags(waves, orders).mT
    if not columns.is_complex():
        return waves[-1:], cross
    return waves[-2:-1], torch.view_as_complex(cross.unflatten(-1, (-1, 2)).contiguous())


def _placed(sums: Tensor, group: int, value: Tensor) -> Tensor:
    """Sums by group (G, ...) with the value of one of them, (1, ...)."""
    return torch.cat([sums[:group], value.to(sums), sums[group + 1 :]])


def _size(orders: Tensor) -> int:
    """The number L of differences of frequencies."""
    size = 1
    for half in lag_half(orders):
        size *= 2 * half + 1
    return size
