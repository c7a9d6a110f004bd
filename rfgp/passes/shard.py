"""The rows of one rank, which stand for those of all ranks."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor

from .._support.ranks import Ranks
from ..data import Sample, Source, sample
from ..data.base import Batch


class Shard(Source):
    """The rows that this rank reads of a table that all ranks of ``torch.distributed`` read together.

    All ranks call ``model.condition(Shard(rows))`` or ``rfgp.fit(model, Shard(rows))``, each with its own rows, and end
    with the same model, to the last bit. Where a rank fails, all raise an error that names it.

    :param rows: batches (x, y) or (x, y, noise) that can be gone through again and again, such as one of
        ``source.partitions(world_size)``; ``[]`` for no rows, which not all ranks may have.
    :param group: a process group; default: all ranks.
    :raises ValueError: where there is no process group, or ``rows`` can be gone through once only.

    >>> import torch, rfgp
    >>> store = torch.distributed.HashStore()  # torchrun has one of its own
    >>> torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    >>> rfgp.passes.Shard([(torch.rand(100, 2), torch.rand(100))]).ranks.count
    1
    >>> torch.distributed.destroy_process_group()
    """

    def __init__(self, rows: Iterable[tuple[Tensor, ...]], group: Any = None) -> None:
        if isinstance(rows, Tensor | Iterator) or not isinstance(rows, Iterable):
            raise ValueError(
                f"expected batches (x, y) that can be gone through again, got {type(rows).__name__}; use a list of "
                "them, or a source of rfgp.data"
            )
        self.rows, self.ranks = rows, Ranks(group)

    @property
    def num_rows(self) -> int | None:
        """The number of rows of this rank."""
        rows = self.rows
        if isinstance(rows, Source):
            return rows.num_rows
        return sum(len(batch[0]) for batch in rows) if isinstance(rows, list | tuple) else None

    @property
    def description(self) -> str:
        source = self.rows.description if isinstance(self.rows, Source) else f"batches of a {type(self.rows).__name__}"
        return f"{source}, on rank {self.ranks.rank} of {self.ranks.count}"

    @property
    def first_row(self) -> int:
        """The number of the first row in the table: ranks have different ones."""
        return self.rows.first_row if isinstance(self.rows, Source) else self.ranks.rank << 40

    def batches(self, start: int = 0) -> Iterator[Batch]:
        if isinstance(self.rows, Source):
            return self.rows.batches(start)
        return itertools.islice(iter(self.rows), start, None)

    def partitions(self, count: int) -> list[Source]:
        raise ValueError(f"expected the rows of a table to part, got {self.description}; part the rows before")

    def sample(self, count: int, seed: int) -> Sample:
        """Random rows of all ranks, the same on every rank for the same seed; see :func:`rfgp.data.sample`."""

        def own() -> Sample | None:
            return None if next(iter(self), None) is None else sample(self, count, seed)

        parts = self.ranks.every(self.ranks.attempt(own, "a pass over the rows"))
        samples = [part for part in parts if part is not None]
        if not samples:
            raise ValueError(f"expected rows on at least one of {self.ranks.count} ranks, got none; check the shards")
        return functools.reduce(lambda first, second: first.merge(second), samples)
