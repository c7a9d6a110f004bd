"""Sums of a weight-space model over rows in blocks."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Self

from torch import Tensor

from ..inference import Rows
from ..inference.local import LocalRows
from ..kernels.input_units import input_units
from .batches import Batch, joined
from .block_tasks import sums_of_blocks_by
from .weight_space_rows import TakesRows, finite


class TakesBlocks(TakesRows):
    """A weight-space model that models what landmarks leave over inside blocks, and keeps the rows for it."""

    def _fit_blocks(self, parts: list[Batch], is_all: bool, executor: Executor | None = None) -> Self:
        """:meth:`condition` to rows in blocks, which are all taken together first."""
        with self._nothing_lost_on_error():
            x, y, noise = joined(parts)
            rows = self._checked_rows(x, y, noise, is_all)
            known = None if self._fitted is None else self._fitted.local
            units, size = input_units(self.covar_module.exact_kernel, x), self.block_size or len(x)
            local = LocalRows.of(x, *self._columns_and_variances(rows), units, size, known)
            dtype, shift = self._product_dtype(x, rows), rows.center
            if executor is None:
                total = local.statistics(self.covar_module, dtype, shift)
            else:
                total = sums_of_blocks_by(executor, self, local, dtype, shift)
            self._set(finite(total, x), parts, None, local.detached())
        return self

    def _update_blocks(self, x: Tensor, y: Tensor, noise: Tensor | None) -> Self:
        """:meth:`update` of rows in blocks: those that the new rows fall into are computed again."""
        statistics, local = self.statistics, self._known_rows()
        with self._nothing_lost_on_error():
            rows = self._checked_rows(x, y, noise, is_all=False)
            added = x, *self._columns_and_variances(rows)
            total, local = local.updated(self.covar_module, statistics, self._product_dtype(x, rows), added)
            self._set(finite(total, x), [*self.training_data, (x, y, noise)], None, local.detached())
        return self

    def _known_rows(self) -> LocalRows:
        local = self._known().local
        if local is None:
            raise ValueError(
                "expected a model with the rows of its blocks, got one that was saved without them; call "
                "condition(x, y) with all rows, or save it with_rows=True"
            )
        return local

    def _columns_and_variances(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return rows.targets.double(), self._noise.variances(rows)
