"""Sufficient statistics of the features of a frequency grid, whose Gram matrix is a function of differences."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import Tensor

from ..._support import checks
from ...linalg.exponential_sums import exponential_sums, has_fft
from ...linalg.frequency_grid import FrequencyGrid, cross_of_lags, gram_of_lags, head_of_gram, lag_half
from ..noise import NoiseModel
from .checks import check_lags
from .rows import Part, Rows
from .statistics import GramStatistics, of_grams
from .sufficient_statistics import SufficientStatistics, TargetSums

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel
    from .accumulation import SummedKernel

MOST_DENSE = 4001
"""More features of one output on a grid have no dense matrices."""


def is_wide(kernel: SummedKernel, noise: NoiseModel | None) -> bool:
    """Whether a kernel is one grid of one real output with more features than dense matrices are formed for."""
    if noise is None or noise.num_systems * noise.num_outputs > 1 or noise.is_complex:
        return False
    is_plain = not kernel.has_output_factor and not kernel.batch_shape and kernel.frequency_grid is not None
    return is_plain and kernel.num_scalar_features > MOST_DENSE


def grid_of(kernel: SummedKernel) -> tuple[FrequencyGrid, Tensor]:
    """The grid of a kernel, and the amplitudes (D,) of its features; a ValueError for other features."""
    grid, amplitudes = kernel.frequency_grid, kernel.summed_amplitudes
    if grid is None or amplitudes is None:
        raise ValueError('expected the features of a frequency grid, got others; use method="fourier_grid"')
    return grid, amplitudes


def check_not_wide(kernel: SummedKernel, noise: NoiseModel | None, what: str) -> None:
    """Raise a ValueError where something needs the dense matrices that a wide grid has not."""
    if is_wide(kernel, noise):
        raise refused(what, kernel.num_scalar_features)


def refused(what: str, num_features: int) -> ValueError:
    """What to raise for so many features."""
    return ValueError(
        f"expected at most {MOST_DENSE} features of a Fourier grid for {what}, got {num_features}; approximate the "
        "kernel with fewer features"
    )


class PlainFeatures:
    """What is summed in place of the features of a kernel that differ from row to row, such as those of boxes."""

    def __init__(self, kernel: FeatureKernel) -> None:
        self.kernel = kernel

    def of_rows(self, x: Tensor) -> Tensor:
        """The features of rows that are summed, (N, D)."""
        features: Tensor = self.kernel.summed_features(x)
        return features


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

    additive: ClassVar[tuple[str, ...]] = ("lags",)
    shared: ClassVar[tuple[str, ...]] = ("orders",)
    differentiable_sums: ClassVar[tuple[str, ...]] = ("lags", "cross", "target_gram", "log_noise")

    @classmethod
    def of_grid(cls, grid: FrequencyGrid, num_groups: int, shift: Tensor) -> GridStatistics:
        """Statistics without rows."""
        lags = torch.zeros(num_groups, 2, _size(grid.orders), dtype=torch.float64, device=shift.device)
        targets = TargetSums.zeros(grid.num_features, num_groups, torch.float64, shift)
        return cls.made(targets, {"lags": lags, "orders": grid.orders.to(shift.device)})

    @staticmethod
    def _no_features(none: Tensor, num_groups: int) -> dict[str, Tensor]:
        raise ValueError("expected a frequency grid for its statistics, got a number of features; use of_grid")

    def _hold(self, features: dict[str, Tensor]) -> None:
        super()._hold(features)
        self._dense: Tensor | None = None

    @staticmethod
    def _squares(features: dict[str, Tensor]) -> Tensor:
        lags = features["lags"]
        return lags[:, 0, lags.shape[-1] // 2]

    @classmethod
    def _check_state(cls, state: dict[str, Tensor]) -> None:
        check_lags(state, _size)

    @property
    def lags(self) -> Tensor:
        """The sums of cosines and sines of all differences of frequencies, (G, 2, L)."""
        return self._own["lags"]

    @property
    def orders(self) -> Tensor:
        """The frequencies as multiples of their spacing, (H, d)."""
        return self._own["orders"]

    @property
    def gram(self) -> Tensor:
        """The Gram matrices, (G, D, D)."""
        what = f"Gram matrices of {self.num_features} x {self.num_features} numbers"
        checks.fits_in_memory(24.0 * len(self.lags) * self.num_features**2, what, "use fewer features")
        if self.lags.requires_grad:
            return gram_of_lags(self.lags, self.orders)
        if self._dense is None:
            self._dense = gram_of_lags(self.lags, self.orders)
        return self._dense

    @property
    def trace(self) -> float:
        return self.num_features * super().trace

    @property
    def is_finite(self) -> bool:
        return super().is_finite and bool(torch.isfinite(self.lags.detach()).all())

    def add(self, features: Tensor, rows: Rows, product_dtype: torch.dtype = torch.float64) -> Self:
        """Add rows by their phases, (n, d)."""
        lags, cross, target_gram, log_noise = _sums_of_rows(self.shift, self.orders, features, rows)
        added = TargetSums(cross, target_gram, rows.counts, log_noise, self.shift)
        self.targets = self.targets.combined(added, torch.add)
        self._hold(self._own | {"lags": self.lags + lags})
        return self

    def graph(self, product_dtype: torch.dtype) -> Callable[..., Sequence[Tensor]]:
        return functools.partial(_sums_of_rows, self.shift, self.orders)

    def is_part_of(self, whole: SufficientStatistics) -> bool:
        return self._head().is_part_of(self.of(whole)._head())

    def _head(self) -> GramStatistics:
        """The statistics of the features of the first orders, which are all but for very wide grids."""
        numbers, gram = head_of_gram(self.lags, self.orders, _ORDERS_AT_ONCE)
        return of_grams(gram, self.targets._replace(cross=self.targets.cross[:, numbers]))

    def chunks(self, rows: Rows, itemsize: int) -> list[Part]:
        """Chunks of rows, which are large where a non-uniform FFT adds them."""
        size = _ROWS_AT_ONCE[has_fft()]
        if rows.groups is None:
            count = len(rows.targets)
            return [slice(start, min(start + size, count)) for start in range(0, count, size)]
        blocks = [(rows.groups == group).nonzero().squeeze(-1) for group in range(rows.num_groups)]
        return [part for members in blocks if len(members) for part in members.split(size)]

    @classmethod
    def check_memory(cls, width: int, num_groups: int, num_rows: int, itemsize: int) -> None:
        GramStatistics.check_memory(width, num_groups, num_rows, itemsize)


def _sums_of_rows(
    shift: Tensor, orders: Tensor, phases: Tensor, rows: Rows, positions: Tensor | None = None
) -> tuple[Tensor, ...]:
    """The differentiable sums over rows with phases (N, d)."""
    columns, width = len(shift) + 1, 2 * len(orders) + 1
    sizes = (2, _size(orders)), (width, columns), (columns, columns)
    dtypes = torch.float64, shift.dtype, shift.dtype
    none = [shift.new_zeros(size, dtype=dtype) for size, dtype in zip(sizes, dtypes, strict=True)]
    by_group = [none] * rows.num_groups
    for group, members, part in rows.by_group():
        exact = part.with_ones(shift)
        weighted = exact if part.weights is None else exact * part.weights.double().unsqueeze(-1)
        by_group[group] = [*_waves(phases[members], weighted, orders), weighted.mH @ exact]
    return *(torch.stack(sums) for sums in zip(*by_group, strict=True)), rows.log_noises


def _waves(phases: Tensor, columns: Tensor, orders: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of cosines and sines times the last of some columns (n, K), (2, L), and of features times all, (D, K)."""
    parts = torch.view_as_real(columns).flatten(-2) if columns.is_complex() else columns
    sums = exponential_sums(phases, parts, lag_half(orders)).flatten(1)
    waves = torch.stack([sums.real, -sums.imag], dim=1)
    cross = cross_of_lags(waves, orders).mT
    if not columns.is_complex():
        return waves[-1], cross
    return waves[-2], torch.view_as_complex(cross.unflatten(-1, (-1, 2)).contiguous())


def _size(orders: Tensor) -> int:
    """The number L of differences of frequencies."""
    size = 1
    for half in lag_half(orders):
        size *= 2 * half + 1
    return size
