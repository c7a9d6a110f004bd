"""Rows in blocks of near ones: partitions are read by tasks, brought together, and summed by tasks of whole blocks."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...data.batches import Batch, batches, joined
from ...inference.local import LocalRows, sums_of_blocks
from ...inference.sums.sufficient_statistics import SufficientStatistics
from ...passes.partitions import Partition
from ...passes.tasks import one_thread, pickled, results
from ...passes.tree_sum import TreeSum
from .row_summation import check_rows

if TYPE_CHECKING:
    from .model import WeightSpaceGP

BLOCK_ROWS = 8192
"""How many rows the blocks of a task have together, about."""


def rows_of_partitions(model: WeightSpaceGP, partitions: Iterable[Partition], executor: Executor) -> list[Batch]:
    """The rows of all partitions, read and checked by the workers; a ValueError where a task raises anything."""
    unfitted = pickled(model.unconditioned(), "the model")
    tasks = ((part.name, (unfitted, pickled(part.batches, part.name))) for part in partitions)
    parts = [pickle.loads(rows) for rows in results(executor, _pickled_rows, tasks)]
    return [part for part in parts if part is not None]


def sums_of_blocks_by(
    executor: Executor, model: WeightSpaceGP, local: LocalRows, product_dtype: torch.dtype, shift: Tensor
) -> SufficientStatistics:
    """The sums over blocks of rows by the workers, whole blocks per task; a ValueError where a task raises anything."""
    unfitted, shift, has_cells = pickled(model.unconditioned(), "the model"), shift.detach(), local.has_cells
    tensors = local.detached().tensors

    def tasks() -> Iterator[tuple[str, tuple[Any, ...]]]:
        first = 0
        for blocks in _groups(local.partition.blocks):
            last = first + len(blocks)
            rows, sizes = torch.cat(blocks).to(local.x.device), [len(block) for block in blocks]
            own = [tensor[rows] for tensor in tensors]
            yield f"blocks {first} to {last}", (unfitted, pickle.dumps((own, sizes, product_dtype, shift, has_cells)))
            first = last

    total = TreeSum[SufficientStatistics](_added)
    for sums in results(executor, _pickled_block_sums, tasks()):
        total.add(pickle.loads(sums))
    return total.value()


def _groups(blocks: list[Tensor]) -> Iterator[list[Tensor]]:
    """Blocks that follow one another, with about :data:`BLOCK_ROWS` rows together."""
    group: list[Tensor] = []
    for block in blocks:
        group.append(block)
        if sum(map(len, group)) >= BLOCK_ROWS:
            yield group
            group = []
    if group:
        yield group


def _added(first: SufficientStatistics, second: SufficientStatistics) -> SufficientStatistics:
    with one_thread(), torch.no_grad():
        return first.merge(second)


def _pickled_rows(model: bytes, parts: bytes) -> bytes:
    """The checked rows of a partition, or None where there are none."""
    found = [batch for batch in batches(pickle.loads(parts), None, None) if len(batch[0])]
    if not found:
        return pickle.dumps(None)
    with torch.no_grad():
        rows = joined(found)
        check_rows(pickle.loads(model), *rows)
    return pickle.dumps(rows)


def _pickled_block_sums(model: bytes, rows: bytes) -> bytes:
    """The sums over some blocks, by one thread."""
    tensors, sizes, product_dtype, shift, has_cells = pickle.loads(rows)
    blocks = torch.arange(sum(sizes)).split(sizes)
    with one_thread(), torch.no_grad():
        systems = pickle.loads(model).systems(has_cells)
        return pickle.dumps(sums_of_blocks(systems, tensors, blocks, product_dtype, shift))
