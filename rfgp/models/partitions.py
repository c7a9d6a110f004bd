"""Sums over partitions of rows: a task for each, and their sums added up as a tree."""

from __future__ import annotations

import functools
import itertools
import math
import pickle
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _checks
from ..data import ArraySource, Source
from ..inference import GramStatistics, NoiseModel, TreeSum
from ..kernels.map_holder import map_holders
from .batches import batches
from .partition_gradients import Again, tracked
from .row_sums import RowSums
from .sent import pickled, rows_of
from .tasks import errors_of, one_thread, results
from .untracked import untracked

ROWS = 65536
"""How many rows a partition of a source has, about."""


class Partition(NamedTuple):
    """Rows that one task sums.

    :param name: its number and its rows.
    :param batches: what can be iterated over as often as wanted, and pickled.
    """

    name: str
    batches: Iterable[tuple[Tensor, ...]]


class Partitions:
    """The partitions that a fit is given, or those of its rows, whose sizes the rows alone decide.

    :param x: inputs, a source, or partitions.
    :param y: targets beside inputs.
    :param noise: noise variances beside inputs.
    :raises ValueError: for data of another kind, or a source that does not know how many rows it has.
    """

    def __init__(self, x: Any, y: Any, noise: Any) -> None:
        batches(x, y, noise)
        self.parts: Iterable[Any] = ArraySource(x, y, noise) if isinstance(x, Tensor) else x
        if isinstance(self.parts, Source):
            if self.parts.num_rows is None:
                raise ValueError(
                    f"expected a source that knows its number of rows, got {self.parts.description}; pass a list of "
                    "sources, such as one for each file"
                )
            self.parts = self.parts.partitions(math.ceil(self.parts.num_rows / ROWS))

    def __iter__(self) -> Iterator[Partition]:
        begin = 0
        for number, part in enumerate(self.parts):
            if isinstance(part, Source):
                yield Partition(f"partition {number} ({part.description})", part)
                continue
            own = _copied(part)
            end = begin + sum(len(batch[0]) for batch in own)
            yield Partition(f"partition {number} (rows {begin} to {end})", own)
            begin = end


def sums_of_partitions(model: Any, partitions: Iterable[Partition], executor: Executor) -> RowSums:
    """The sums over all partitions, which are the same to the last bit whatever executor there is.

    :param model: the model, which stays as it is, but for maps that wait for their first inputs.
    :param partitions: the rows.
    :param executor: what calls the tasks.
    :raises ValueError: where a task raises anything.
    """
    source = iter(partitions)
    first = next(source, None)
    if first is None:
        raise ValueError("expected at least one partition, got none; pass a list of sources, or of tuples (x, y)")
    with errors_of(first.name):
        make_maps(model, first)
    unfitted = pickled(model._unfitted(), "the model")
    parts = itertools.chain([first], source)
    tasks = ((part.name, (unfitted, pickled(part.batches, part.name))) for part in parts)
    total = TreeSum[RowSums | None](functools.partial(merged, model._noise))
    num_rows = []
    for found in results(executor, _pickled_sums, tasks):
        sums: RowSums | None = pickle.loads(found)
        total.add(sums)
        num_rows.append(0 if sums is None else sums.num_rows)
    known = not_empty(total.value())
    if not torch.is_grad_enabled():
        return known
    if model._noise.statistics_kind is not GramStatistics:
        return known._replace(draws=untracked(model, known.draws))
    return tracked(model, known, Again(unfitted, partitions, num_rows, executor))


def make_maps(model: Any, first: Partition) -> None:
    """Make the maps that wait for their first inputs, so that they are the same in all tasks."""
    if any(part.feature_map is None for part in map_holders(model.covar_module)):
        rows = next((batch for batch in batches(first.batches, None, None) if len(batch[0])), None)
        if rows is None:
            raise ValueError(f"expected rows in {first.name} to make the features with, got none; leave it out")
        model._sums_of([tuple(None if part is None else part[:1] for part in rows)])
    model.further_draws.begin(model)


def sums_of_partition(model: bytes, parts: Iterable[tuple[Tensor, ...]]) -> RowSums | None:
    """The sums over one partition, by one thread; None where it has no rows.

    :param model: a pickled model without data.
    :param parts: the batches.
    """
    with one_thread(), torch.no_grad():
        own = rows_of(parts)
        first = next(own, None)
        return None if first is None else pickle.loads(model)._sums_of(itertools.chain([first], own))


def merged(noise: NoiseModel, first: RowSums | None, second: RowSums | None) -> RowSums | None:
    """The sums over the rows of both, by one thread.

    :param noise: the noise model.
    :param first: sums over earlier rows; None where there are none.
    :param second: sums over later rows.
    """
    if first is None or second is None:
        return second if first is None else first
    with one_thread(), torch.no_grad():
        return first.merged(second, noise)


def not_empty(sums: RowSums | None) -> RowSums:
    """The sums, or a ValueError where there were no rows."""
    if sums is None:
        raise ValueError("expected rows in at least one partition, got none; check what the partitions read")
    return sums


def _pickled_sums(model: bytes, parts: bytes) -> bytes:
    """:func:`sums_of_partition` of bytes: PyTorch sends tensors between processes as open files, of which few fit."""
    return pickle.dumps(sums_of_partition(model, pickle.loads(parts)))


def _copied(part: Any) -> list[Any]:
    """The batches of a partition, without the rows that views share their memory with."""
    if not isinstance(part, list | tuple) or not part:
        raise ValueError(
            f"expected a source, a list of batches or a tuple (x, y) as partition, got {part!r}; pass a list of these"
        )
    given = [part] if isinstance(part[0], Tensor) else part
    own = list(batches(given, None, None))
    for value in itertools.chain(*own):
        if value is not None:
            _checks.instance("every part of a batch", value, Tensor, "a torch.Tensor", "use torch.as_tensor")
    return [tuple(None if value is None else value.clone() for value in batch) for batch in own]
