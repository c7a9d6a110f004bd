"""From rows to sufficient statistics: features in chunks, at constant memory, with gradients where they are wanted."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from ...linalg.frequency_grid import FrequencyGrid
from ..noise import NoiseModel
from .grid_statistics import GridStatistics
from .plain_features import PlainFeatures
from .row_gradients import Pairs
from .rows import Rows, has_gradients
from .statistics import GramStatistics
from .sufficient_statistics import SufficientStatistics
from .summation import Make, Piece, StatisticsOfRows, summed
from .training_residual import TrainingResidual
from .wide_grids import is_wide


class ScalarFeatures(Protocol):
    """The protocol of kernels with scalar features, such as those made by :func:`rfgp.approximate`."""

    @property
    def is_complex(self) -> bool:
        """Whether the features are complex."""

    @property
    def num_scalar_features(self) -> int:
        """The number D of features; a ValueError where a map waits for its first inputs."""

    def scalar_features(self, x: Tensor) -> Tensor:
        """The features (..., N, D) of inputs (..., N, d)."""

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters that the features depend on."""

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """All parameters."""

    def summed_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters that sums over rows depend on."""


def accumulate(
    kernel: ScalarFeatures,
    noise: NoiseModel,
    x: Tensor,
    rows: Rows,
    product_dtype: torch.dtype,
    before: SufficientStatistics | None = None,
    residual: TrainingResidual | None = None,
    grid: FrequencyGrid | PlainFeatures | None = None,
) -> SufficientStatistics:
    """Sum the statistics of rows at x (N, d) in chunks, with gradients at the memory of one chunk.

    :param before: statistics to add to, in place where there are no gradients; default: none.
    :param residual: the variance of the rows that features lack; default: nothing.
    :param grid: what is summed in place of the features, without amplitudes; default: the features.
    """
    width = _width(kernel, x) if before is None else before.num_features
    parameters = list(kernel.summed_parameters() if residual is None else kernel.parameters())
    tracks = has_gradients((x, *rows[:3], *parameters))
    is_open = before is not None and not tracks and len(before.count) == rows.num_groups
    total = before if is_open and before is not None else _empty(kernel, grid, noise, width, rows, before)
    if rows.groups is not None:
        total.expect(rows.groups)
    make, parts = _maker(kernel, grid, residual), total.chunks(rows, _itemsize(total, x))
    total = summed(make, x, rows, parts, parameters, total, product_dtype)
    return total if is_open else noise.merged(before, total)


class SumGradients:
    """The gradients of sums over the rows of batches that are read a second time."""

    def __init__(
        self,
        kernel: ScalarFeatures,
        noise: NoiseModel,
        total: SufficientStatistics,
        residual: TrainingResidual | None = None,
        grid: FrequencyGrid | PlainFeatures | None = None,
    ) -> None:
        self.kernel, self.noise = kernel, noise
        self.total = total.with_differentiable([value.detach() for value in total.differentiable()])
        self.make = _maker(kernel, grid, residual)
        self.parameters = [*(kernel.summed_parameters() if residual is None else kernel.parameters())]

    def pieces(self, gradients: Sequence[Tensor]) -> Callable[[Tensor, Rows, torch.dtype], Piece]:
        """Takes inputs, rows and the dtype of products of batches in order, for given gradients of the sums."""
        total = self.total
        positions = total.row_positions()

        @functools.cache
        def pull(num_groups: int, product_dtype: torch.dtype) -> Callable[..., Pairs]:
            return StatisticsOfRows(self.make, product_dtype, total).pullback(*self._of_groups(gradients, num_groups))

        def piece(x: Tensor, rows: Rows, product_dtype: torch.dtype) -> Piece:
            further = () if positions is None else (positions.next(rows.group_numbers),)
            parts = total.chunks(rows, _itemsize(total, x))
            return Piece(pull(rows.num_groups, product_dtype), parts, (x, *rows[:4], *further))

        return piece

    def _of_groups(self, gradients: Sequence[Tensor], num_groups: int) -> Sequence[Tensor]:
        """The gradients of the sums of a batch, which had no more groups than this when it was merged."""
        if num_groups >= len(gradients[-1]):
            return gradients
        with torch.enable_grad():
            of_groups = [g.new_zeros(num_groups, *g.shape[1:]).requires_grad_() for g in gradients]
            of_batch, of_all = (
                GramStatistics.of_differentiable(sums, self.total.shift) for sums in (of_groups, gradients)
            )
            aligned, _ = self.noise.aligned(of_batch, of_all)
            return torch.autograd.grad(aligned.differentiable(), of_groups, gradients)


def _maker(
    kernel: ScalarFeatures, grid: FrequencyGrid | PlainFeatures | None, residual: TrainingResidual | None
) -> Make:
    """What makes features of inputs, or phases for a grid, and adds to rows what the features lack."""

    if isinstance(grid, FrequencyGrid):
        summed_rows = grid.phases_of_rows
    else:
        summed_rows = kernel.scalar_features if grid is None else grid.of_rows

    def make(x: Tensor, rows: Rows) -> tuple[Tensor, Rows]:
        return summed_rows(x), rows if residual is None else residual.added(kernel, x, rows)

    return make


def _width(kernel: ScalarFeatures, x: Tensor) -> int:
    """The number of features, whose maps are made where they wait for their first inputs."""
    try:
        return kernel.num_scalar_features
    except ValueError:
        with torch.no_grad():
            return kernel.scalar_features(x[:1]).shape[-1]


def _itemsize(total: SufficientStatistics, x: Tensor) -> int:
    """The bytes of a feature."""
    return x.element_size() * (2 if total.has_complex_features else 1)


def _empty(
    kernel: ScalarFeatures,
    grid: FrequencyGrid | PlainFeatures | None,
    noise: NoiseModel,
    width: int,
    rows: Rows,
    before: SufficientStatistics | None,
) -> SufficientStatistics:
    """Statistics without rows, with the shift of those before, if there are any."""
    shift = rows.center if before is None else before.shift
    if isinstance(grid, FrequencyGrid):
        if not is_wide(kernel, noise):
            GridStatistics.check_memory(width, rows.num_groups, len(rows.targets), 8)
        return GridStatistics.of_grid(grid, rows.num_groups, shift.detach())
    kind = type(before) if before is not None else noise.statistics_kind if grid is None else GramStatistics
    is_complex = kernel.is_complex
    kind.check_memory(width, rows.num_groups, len(rows.targets), 16 if is_complex else 8)
    return kind.empty(width, rows.num_groups, is_complex, shift.detach())
