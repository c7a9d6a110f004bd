"""The sums over the rows that a weight-space model is given: tensors, batches of a source, ranks, or partitions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ...data.batches import Batch, Batches, batches
from ...inference.sums.sufficient_statistics import SufficientStatistics
from ...passes import Shard
from ...passes.checkpoint import Checkpoint
from ...passes.executor import ExecutorReducer
from ...passes.local import LocalReducer
from ...passes.partitions import Partitions
from ...passes.rank_reducer import RankReducer
from ...passes.reducer import Reducer, without_gradients
from .block_sums import BlockSums
from .block_tasks import rows_of_partitions, sums_of_blocks_by
from .checks import check_statistics
from .imputation import imputed, needs_imputation
from .row_summation import blocks_of, check_rows, feature_sums
from .row_sums import FeatureSums, RowSums
from .summation import FeatureSummation

if TYPE_CHECKING:
    from .model import WeightSpaceGP


def sums_of_data(
    model: WeightSpaceGP,
    x: Any,
    y: Any,
    noise: Any,
    executor: Executor | None,
    progress: bool | None,
    checkpoint: Any,
    checkpoint_every: int,
) -> tuple[RowSums, list[Batch]]:
    """The sums over all rows, and the rows where the model keeps them; see :meth:`WeightSpaceGP.condition`."""
    has_blocks, keeps_rows = model.block_size is not None, model.keep_data or model.block_size is not None
    if executor is not None:
        if checkpoint is not None or progress:
            raise ValueError(
                "expected neither checkpoint nor progress beside executor, got one; the engine that runs the tasks "
                "retries and shows them"
            )
        if model.keep_data:
            raise ValueError("expected keep_data=False beside executor, whose workers have the rows; leave it out")
        partitions = Partitions(x, y, noise)
        if has_blocks:
            return _block_sums(model, rows_of_partitions(model, partitions, executor), False, executor)
        return ExecutorReducer[FeatureSums](partitions, executor).reduce(FeatureSummation(model)), []
    if isinstance(x, Shard) and keeps_rows:
        raise ValueError(
            "expected a model without block_size and keep_data for the Shard of a rank, got one that keeps the rows, "
            "of which every rank has its own; leave them out, or fit all rows in one process"
        )
    is_several = model.covar_module.has_output_factor and not keeps_rows
    is_imputed = is_several and needs_imputation(model, x, y)
    source = batches(x, imputed(model, x, y, noise) if is_imputed else y, noise)
    file = None if checkpoint is None else Checkpoint(checkpoint, checkpoint_every)
    if file is not None and (keeps_rows or not isinstance(source, Batches)):
        raise ValueError(
            "expected batches, and a model without block_size and keep_data, beside checkpoint, got another; make "
            "batches of tensors by rfgp.data.ArraySource(x, y)"
        )
    if has_blocks:
        return _block_sums(model, list(source), isinstance(x, Tensor))
    data = list(source) if model.keep_data else []
    if not isinstance(source, Batches):
        (batch,) = source
        sums = feature_sums(model, check_rows(model, *batch, is_all=True))
        return dataclasses.replace(sums, is_imputed=is_imputed), data
    local = LocalReducer[FeatureSums](data or source, progress, file)
    reducer: Reducer[FeatureSums] = RankReducer(x, local) if isinstance(x, Shard) else local
    return reducer.reduce(FeatureSummation(model)), data


def _block_sums(
    model: WeightSpaceGP, data: list[Batch], is_all: bool, executor: Executor | None = None
) -> tuple[BlockSums, list[Batch]]:
    """The sums over rows in blocks, which are all taken together first."""
    rows = blocks_of(model, data, is_all)
    shift = model.systems(rows.local.has_cells).center(rows.local.columns)
    if executor is None:
        return rows.summed(model, shift), data
    statistics = sums_of_blocks_by(executor, model, rows.local, rows.product_dtype, shift)
    summation, sums = FeatureSummation(model), FeatureSums((statistics,))
    return rows.with_sums(without_gradients(summation, sums).draws[0]), data


def statistics_given(
    model: WeightSpaceGP, statistics: SufficientStatistics | Sequence[SufficientStatistics]
) -> FeatureSums:
    """Copies of statistics from elsewhere as the sums of a model; a ValueError for those of another model."""
    given: list[Any] = list(statistics) if isinstance(statistics, list | tuple) else [statistics]
    if len(given) != model.num_draws or not all(isinstance(sums, SufficientStatistics) for sums in given):
        got = ", ".join(type(sums).__name__ for sums in given)
        raise ValueError(
            f"expected GramStatistics for each of num_draws={model.num_draws}, got {got}; take model.draw_statistics"
        )
    if model.block_size is not None:
        raise ValueError(
            "expected a model without blocks for statistics from elsewhere, got one with them, which needs the "
            "rows; call condition(x, y), or make it without block_size"
        )
    for sums in given:
        check_statistics(sums, model)
    device = next(model.covar_module.parameters()).device
    return FeatureSums(tuple(given), model.patterns).detached().to(device)
