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
from ..inference import NoiseModel, TreeSum
from ..kernels.map_holder import map_holders
from .batches import batches
from .row_sums import RowSums
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


def partitions_of(x: Any, y: Any, noise: Any) -> Iterator[Partition]:
    """The partitions that a fit is given, or those of its rows, whose sizes the rows alone decide.

    :raises ValueError: for data of another kind, or a source that does not know how many rows it has.
    """
    batches(x, y, noise)
    parts = ArraySource(x, y, noise) if isinstance(x, Tensor) else x
    if isinstance(parts, Source):
        if parts.num_rows is None:
            raise ValueError(
                f"expected a source that knows its number of rows, got {parts.description}; pass a list of sources, "
                "such as one for each file"
            )
        parts = parts.partitions(math.ceil(parts.num_rows / ROWS))
    begin = 0
    for number, part in enumerate(parts):
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
    for sums in results(executor, _pickled_sums, tasks):
        total.add(pickle.loads(sums))
    sums = not_empty(total.value())
    return sums._replace(draws=untracked(model, sums.draws))


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
        own = (_aligned(batch) for batch in batches(parts, None, None) if len(batch[0]))
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


def pickled(value: Any, name: str) -> bytes:
    """The bytes that a value is sent as.

    :raises ValueError: for something that cannot be pickled.
    """
    try:
        return pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"expected something that can be pickled for {name}, got {type(value).__name__}: {error}; define classes "
            "and functions in a module, under their own names"
        ) from error


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


def _aligned(batch: Iterable[Tensor | None]) -> Any:
    """A batch in memory of its own: where products begin, and with which strides, is then the same everywhere."""
    return tuple(None if part is None else part.clone(memory_format=torch.contiguous_format) for part in batch)
