"""From rows to sufficient statistics: features in chunks, at constant memory, with gradients where they are wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from ...linalg.frequency_grid import FrequencyGrid
from ..noise import NoiseModel
from .grid_statistics import GridStatistics, PlainFeatures, is_wide
from .recomputation import Graph, gradients_of_chunks, recomputed_by_chunk
from .rows import Part, Rows, has_gradients
from .statistics import GramStatistics
from .sufficient_statistics import SufficientStatistics
from .training_residual import TrainingResidual

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel
    from ..posterior.complex_regression import PlaneFeatures

    SummedKernel: TypeAlias = FeatureKernel | PlaneFeatures
    """What has the features that are summed: a kernel, or one whose complex features are two real outputs."""


def accumulate(
    kernel: SummedKernel,
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
    :param residual: the residual variance of the rows; default: nothing.
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


Make = Callable[[Tensor, Rows], tuple[Tensor, Rows]]
"""Takes inputs and rows of a chunk, and returns the features and rows that are summed."""


def summed(
    make: Make,
    x: Tensor,
    rows: Rows,
    parts: Sequence[Part],
    parameters: Sequence[Tensor],
    total: SufficientStatistics,
    product_dtype: torch.dtype,
) -> SufficientStatistics:
    """Statistics of what is made of rows x (N, d), with gradients where wanted, at the memory of one chunk.

    :param make: takes inputs (n, d) and rows of a chunk and returns features (n, D) and rows, the same at every call.
    :param total: statistics to which the rows are added, in place; without rows where there are gradients.
    """
    by_row, positions = (x, *rows[:4]), None
    tracks = has_gradients((*by_row, *parameters))
    if tracks and rows.groups is not None:
        positions = total.row_positions(rows.groups)
    with torch.no_grad():
        for part in parts:
            total.add(*make(x[part], rows.take(part)), product_dtype)
    if not tracks:
        return total
    places = None if positions is None else positions.next(rows.groups)
    graph = _graph(make, total, product_dtype, rows)
    sums = recomputed_by_chunk(total.differentiable(), graph, parts, (*by_row, places), parameters=parameters)
    return total.with_differentiable(sums)


def _graph(make: Make, total: SufficientStatistics, product_dtype: torch.dtype, like: Rows) -> Graph:
    """The sums of a chunk with their graph, from inputs, parts of rows, and where these are held."""
    of_rows, num_groups = total.graph(product_dtype), like.num_groups

    def graph(
        x: Tensor,
        targets: Tensor,
        weights: Tensor | None,
        log_noise: Tensor | None,
        groups: Tensor | None,
        positions: Tensor | None,
    ) -> Sequence[Tensor]:
        return of_rows(*make(x, Rows(targets, weights, log_noise, groups, num_groups)), positions)

    return graph


class SecondPass:
    """The rows of batches that are read a second time, for gradients of the sums over them."""

    def __init__(
        self,
        kernel: SummedKernel,
        noise: NoiseModel,
        total: SufficientStatistics,
        residual: TrainingResidual | None = None,
        grid: FrequencyGrid | PlainFeatures | None = None,
    ) -> None:
        self.noise, self.positions = noise, total.row_positions()
        self.total = total.with_differentiable([value.detach() for value in total.differentiable()])
        self.make = _maker(kernel, grid, residual)
        self.parameters = [*(kernel.summed_parameters() if residual is None else kernel.parameters())]

    def gradients(
        self, of_sums: Sequence[Tensor], x: Tensor, rows: Rows, product_dtype: torch.dtype, inputs: Sequence[Tensor]
    ) -> list[Tensor | None]:
        """The gradients in some tensors that the next batch adds, from those of the sums over all rows."""
        places = None if self.positions is None else self.positions.next(rows.group_numbers)
        graph = _graph(self.make, self.total, product_dtype, rows)
        parts = self.total.chunks(rows, _itemsize(self.total, x))
        of_groups = self._of_groups(of_sums, rows.num_groups)
        return gradients_of_chunks(graph, of_groups, parts, (x, *rows[:4], places), (), inputs)

    def _of_groups(self, of_sums: Sequence[Tensor], num_groups: int) -> Sequence[Tensor]:
        """The gradients of the sums of a batch, which had no more groups than this when it was merged."""
        if num_groups >= len(of_sums[-1]):
            return of_sums
        with torch.enable_grad():
            of_groups = [g.new_zeros(num_groups, *g.shape[1:]).requires_grad_() for g in of_sums]
            of_batch, of_all = (
                GramStatistics.of_differentiable(sums, self.total.shift) for sums in (of_groups, of_sums)
            )
            aligned, _ = self.noise.aligned(of_batch, of_all)
            return torch.autograd.grad(aligned.differentiable(), of_groups, of_sums)


def _maker(kernel: SummedKernel, grid: FrequencyGrid | PlainFeatures | None, residual: TrainingResidual | None) -> Make:
    """What makes features of inputs, or phases for a grid, and adds to rows the residual variance."""

    if isinstance(grid, FrequencyGrid):
        summed_rows = grid.phases_of_rows
    else:
        summed_rows = kernel.scalar_features if grid is None else grid.of_rows

    def make(x: Tensor, rows: Rows) -> tuple[Tensor, Rows]:
        return summed_rows(x), rows if residual is None else residual.added(kernel, x, rows)

    return make


def _width(kernel: SummedKernel, x: Tensor) -> int:
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
    kernel: SummedKernel,
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
