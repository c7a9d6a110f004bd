"""Sums over rows in blocks of near ones, which are kept: what landmarks leave over is modeled inside every block."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from ...approximation.input_scales import input_scales
from ...inference.local import LocalRows
from ...inference.local.system_regression import needs_cells
from ...inference.noise.targets import Observations
from ...inference.sums.rows import Rows
from ...inference.sums.sufficient_statistics import SufficientStatistics
from ...linalg.row_search import row_numbers
from .row_sums import FeatureSums, RowSums, check_left, checked_finite

if TYPE_CHECKING:
    from .model import WeightSpaceGP

_RELATIVE_WEIGHT = 1e-9
"""Noise variances of rows that are looked for may differ by so much, relatively: weights are products of factors."""


@dataclasses.dataclass(frozen=True)
class BlockSums(RowSums):
    """Sums over whitened rows in blocks; where rows change, only the blocks that they are in are computed again."""

    local: LocalRows
    product_dtype: torch.dtype
    draws: tuple[SufficientStatistics, ...] = ()
    patterns, some_rows, training_rows, input_bounds = (), None, None, None

    @classmethod
    def of(
        cls, model: WeightSpaceGP, x: Tensor, rows: Rows, product_dtype: torch.dtype, before: LocalRows | None = None
    ) -> Self:
        """Rows in blocks of at most ``model.block_size``, without sums.

        :param before: rows whose blocks are kept where inputs are the same and gradients run.
        """
        has_cells = needs_cells(model.covar_module, model.noise, rows)
        return cls(local_rows(model, x, rows, before, has_cells), product_dtype)

    @property
    def num_rows(self) -> int:  # type: ignore[override]
        """The number of rows."""
        return len(self.local.x)

    def summed(self, model: WeightSpaceGP, shift: Tensor | None = None) -> Self:
        """The sums over these rows; ``shift`` (K,), by default their mean, is subtracted from the columns."""
        systems = model.systems(self.local.has_cells)
        shift = systems.center(self.local.columns) if shift is None else shift
        statistics = self.local.statistics(systems, self.product_dtype, shift)
        return self._checked(statistics, self.local.detached())

    def resummed(self, model: WeightSpaceGP) -> Self:
        """The sums over these rows, computed anew in float64."""
        rows = dataclasses.replace(self, product_dtype=model.product_dtype or torch.float64)
        return rows.summed(model)

    def merge(self, other: Self, model: WeightSpaceGP) -> Self:
        if self.local.has_cells != other.local.has_cells:
            both = self.with_cells(model), other.with_cells(model)
            return both[0].summed(model).merge(both[1], model)
        added = other.local.x, other.local.columns, other.local.variances, other.local.powers
        (statistics,) = self.draws
        return self._checked(
            *self.local.updated(model.systems(self.local.has_cells), statistics, other.product_dtype, added)
        )

    def without(self, other: Self, model: WeightSpaceGP, is_centered: bool = True) -> Self:
        if self.local.has_cells != other.local.has_cells:
            return self.with_cells(model).summed(model).without(other.with_cells(model), model, is_centered)
        (statistics,) = self.draws
        numbers = self.numbers_of(other)
        check_left(len(self.local.x) - len(numbers))
        left, local = self.local.reduced(model.systems(self.local.has_cells), statistics, other.product_dtype, numbers)
        return self._checked(left.recentered(), local)

    def with_cells(self, model: WeightSpaceGP) -> Self:
        """The same rows with every observed cell of several outputs as a row, without sums; see :class:`CellSystem`."""
        if self.local.has_cells:
            return self
        rows = model.noise.weigh(Observations(self.local.columns, weights=1.0 / self.local.variances))
        local = local_rows(model, self.local.x, rows, None, True)
        local.powers = self.local.powers.repeat_interleave(model.noise.num_outputs)
        return dataclasses.replace(self, local=local, draws=())

    def check_left_of(self, whole: Self, model: WeightSpaceGP) -> None:
        """Nothing: rows that are taken away are looked for among those that are kept."""

    def scaled(self, factor: float, model: WeightSpaceGP) -> Self:
        rows = dataclasses.replace(self, local=self.local.forgotten(factor))
        return rows.resummed(model) if self.draws else rows

    def difference(self, other: Self, model: WeightSpaceGP) -> float:
        return FeatureSums(self.draws).difference(FeatureSums(other.draws), model)

    def detached(self) -> Self:
        draws = FeatureSums(self.draws).detached().draws
        return dataclasses.replace(self, draws=draws, local=self.local.detached())

    def saved(self, with_rows: bool) -> RowSums:
        return self if with_rows else FeatureSums(self.draws).saved(with_rows)

    def to(self, device: torch.device) -> Self:
        return dataclasses.replace(self, draws=FeatureSums(self.draws).to(device).draws, local=self.local.to(device))

    def numbers_of(self, other: BlockSums) -> Tensor:
        """The numbers (n,) of other rows among these; a ValueError where some have no match."""
        mine, theirs = self.local, other.local
        numbers = row_numbers((mine.x, mine.columns), (theirs.x.to(mine.x), theirs.columns))
        check_found(numbers)
        variances = mine.variances[numbers.to(mine.x.device)]
        is_other = (variances - theirs.variances).abs() > _RELATIVE_WEIGHT * variances
        check_found(torch.where(is_other.cpu(), -1, numbers))
        return numbers

    def with_sums(self, statistics: SufficientStatistics) -> Self:
        """These rows with the sums over them."""
        return self._checked(statistics, self.local)

    def _checked(self, statistics: SufficientStatistics, local: LocalRows) -> Self:
        return dataclasses.replace(self, draws=(checked_finite(statistics, local.x),), local=local.detached())


def local_rows(model: WeightSpaceGP, x: Tensor, rows: Rows, before: LocalRows | None, has_cells: bool) -> LocalRows:
    """Checked rows of a model in their blocks."""
    systems = model.systems(has_cells)
    scales = systems.input_scales(input_scales(model.covar_module.exact_kernel, x))
    inputs, columns, variances = systems.rows(x, rows)
    size = len(x) if model.block_size is None else model.block_size
    return LocalRows.of(inputs, columns, variances, scales, size, before, has_cells)


def check_found(numbers: Tensor) -> None:
    """Raise a ValueError where rows were not found, whose number is -1."""
    missing = (numbers < 0).nonzero().squeeze(-1).tolist()
    if missing:
        names = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise ValueError(
            f"expected rows that the model has, with the same targets and noise, got others at {names}; pass what was "
            "added"
        )
