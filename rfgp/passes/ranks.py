"""Rows of all ranks of a job of torch.distributed, of which every rank reads its own."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from .._support.ranks import Ranks
from ..data import Sample, Source, sample
from ..data.base import Batch
from .local import LocalReducer
from .reducer import Gradients, Reducer

if TYPE_CHECKING:
    from ..models.weight_space.conditioning import FeatureSummation
    from ..models.weight_space.row_sums import FeatureSums


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


_PASS = "a pass over the rows"


class RankReducer(Reducer):
    """Sums and gradients over the rows of all ranks, with the same bits on all of them."""

    def __init__(self, shard: Shard, local: LocalReducer) -> None:
        self.shard, self.local, self.ranks = shard, local, shard.ranks
        self._has_rows = False

    def sums(self, summation: FeatureSummation) -> FeatureSums:
        def of_this_rank() -> tuple[FeatureSums | None, int]:
            first = next(iter(self.shard), None)
            return (None, 0) if first is None else (self.local.sums(summation), first[0].shape[-1])

        sums, width = self.ranks.attempt(of_this_rank, _PASS)
        self._has_rows = sums is not None
        widths = [number for number in self.ranks.every(width) if number]
        if sums is None and widths:
            summation.make_for(widths[0])
        self._check(summation)
        return summation.all_reduce(sums, self.ranks)

    def gradients(self, summation: FeatureSummation, sums: FeatureSums, of_sums: Sequence[Tensor]) -> Gradients:
        def of_this_rank() -> Gradients:
            return self.local.gradients(summation, sums, of_sums) if self._has_rows else [None] * len(parameters)

        parameters = summation.parameters
        found = self.ranks.attempt(of_this_rank, _PASS)
        pairs = zip(parameters, found, strict=True)
        total = [(torch.zeros_like(p) if gradient is None else gradient).contiguous() for p, gradient in pairs]
        self.ranks.sum_(total)
        return list(total)

    def _check(self, summation: FeatureSummation) -> None:
        """Raise a ValueError on all ranks where they have different models."""
        state = summation.states()[0]
        digests = {name: hashlib.sha256(_bytes(value)).hexdigest() for name, value in state.items()}
        every = self.ranks.every(digests)
        changed = {
            name for other in every for name in digests.keys() | other.keys() if other.get(name) != every[0].get(name)
        }
        if changed:
            raise ValueError(
                f"expected the same model on all ranks, got another {', '.join(changed)}; call "
                "rfgp.passes.broadcast(model) on all ranks first"
            )


def _bytes(value: Tensor) -> bytes:
    real = torch.view_as_real(value) if value.is_complex() else value
    return real.cpu().contiguous().numpy().tobytes()


_Model = TypeVar("_Model", bound=torch.nn.Module)


def broadcast(model: _Model, group: Any = None) -> _Model:
    """Give all ranks the parameters and random weights that the model of the first rank has.

    :param model: a model, made with the same classes and sizes on all ranks.
    :param group: a process group; default: all ranks.
    :raises ValueError: where there is no process group, or the state does not fit the model of a rank.

    >>> import torch
    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> broadcast(torch.nn.Linear(2, 1))
    Linear(in_features=2, out_features=1, bias=True)
    >>> dist.destroy_process_group()
    """
    ranks = Ranks(group)
    state: Any = ranks.every(model.state_dict() if ranks.rank == 0 else None)[0]
    ranks.attempt(lambda: model.load_state_dict(state), "a model of the same kind")
    return model
