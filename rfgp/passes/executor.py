"""Rows in partitions, which the workers of an executor read: a task for each, and a tree of their sums."""

from __future__ import annotations

import functools
import itertools
import pickle
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Generic, TypeVar

import torch
from torch import Tensor

from .._support.threads import one_thread
from ..data.batches import Batch
from .partitions import Partition, rows_of
from .reducer import Gradients, Reducer
from .tasks import errors_of, pickled, results

if TYPE_CHECKING:
    from ..models.weight_space.conditioning import FeatureSummation
    from ..models.weight_space.row_sums import FeatureSums

Value = TypeVar("Value")


class TreeSum(Generic[Value]):
    r"""A sum of values, added up by pairs, then pairs of pairs: rounding errors grow like :math:`\log n` at most.

    :param add: takes two values, those of earlier ones first, and returns their sum.

    Source: N. J. Higham, The accuracy of floating point summation, 1993.

    >>> total = TreeSum(lambda a, b: f"({a}{b})")
    >>> for letter in "abcdefg":
    ...     total.add(letter)
    >>> total.value()
    '(((ab)(cd))((ef)g))'
    """

    def __init__(self, add: Callable[[Value, Value], Value]) -> None:
        self._add = add
        self._parts: list[tuple[int, Value]] = []

    def add(self, value: Value) -> None:
        """Add the next value."""
        count = 1
        while self._parts and self._parts[-1][0] == count:
            value = self._add(self._parts.pop()[1], value)
            count *= 2
        self._parts.append((count, value))

    def value(self) -> Value:
        """The sum of what was added so far; a ValueError where there is nothing."""
        if not self._parts:
            raise ValueError("expected at least one value to sum, got none; add some")
        return functools.reduce(lambda later, part: self._add(part, later), [v for _, v in reversed(self._parts)])


class ExecutorReducer(Reducer):
    """Sums and gradients over partitions, the same to the last bit whatever executor there is."""

    def __init__(self, partitions: Iterable[Partition], executor: Executor) -> None:
        self.partitions, self.executor = partitions, executor
        self._num_rows: list[int] = []

    def sums(self, summation: FeatureSummation) -> FeatureSums:
        source = iter(self.partitions)
        first = next(source, None)
        if first is None:
            raise ValueError("expected at least one partition, got none; pass a list of sources, or of tuples (x, y)")
        prepare(summation, first)
        worker = pickled(summation.without_rows(), "the model")
        parts = itertools.chain([first], source)
        tasks = ((part.name, (worker, pickled(part.batches, part.name))) for part in parts)
        total: TreeSum[FeatureSums | None] = TreeSum(functools.partial(merged, summation))
        self._num_rows = []
        for sums in map(pickle.loads, results(self.executor, _pickled_sums, tasks)):
            total.add(sums)
            self._num_rows.append(0 if sums is None else sums.num_rows)
        return not_empty(total.value())

    def gradients(self, summation: FeatureSummation, sums: FeatureSums, of_sums: Sequence[Tensor]) -> Gradients:
        if not summation.has_gradients_by_part:
            return super().gradients(summation, sums, of_sums)
        worker = pickled(summation.without_rows(), "the model")
        sent = pickled(summation.with_tensors(sums, of_sums), "the gradients")
        pairs = zip(self.partitions, self._num_rows, strict=False)
        tasks = ((part.name, (worker, pickled((part.batches, count), part.name), sent)) for part, count in pairs)
        total, num_parts = TreeSum[Gradients](_added), 0
        for gradients in results(self.executor, _pickled_gradients, tasks):
            total.add(pickle.loads(gradients))
            num_parts += 1
        if num_parts != len(self._num_rows):
            raise ValueError(
                f"expected the {len(self._num_rows)} partitions of the fit once more for its gradient, got "
                f"{num_parts}; pass a list of partitions, or fit under torch.no_grad()"
            )
        return total.value()


def prepare(summation: FeatureSummation, first: Partition) -> None:
    """Make what waits for its first inputs, from those of a partition."""
    with errors_of(first.name):
        rows: Batch | None = None
        if summation.waits:
            rows = next(first.rows(), None)
            if rows is None:
                raise ValueError(f"expected rows in {first.name} to make the features with, got none; leave it out")
        summation.prepare(rows)


def sums_of_partition(summation: FeatureSummation, parts: Iterable[tuple[Tensor, ...]]) -> FeatureSums | None:
    """The sums over one partition, by one thread; None where it has no rows."""
    with one_thread(), torch.no_grad():
        sums = None
        for after in summation.running(rows_of(parts)):
            sums = after
        return sums


def merged(summation: FeatureSummation, first: FeatureSums | None, second: FeatureSums | None) -> FeatureSums | None:
    """The sums over earlier and later rows, by one thread; None where there are no rows."""
    if first is None or second is None:
        return second if first is None else first
    with one_thread(), torch.no_grad():
        return summation.merge(first, second)


def not_empty(sums: FeatureSums | None) -> FeatureSums:
    """The sums, or a ValueError where there were no rows."""
    if sums is None:
        raise ValueError("expected rows in at least one partition, got none; check what the partitions read")
    return sums


def _pickled_sums(worker: bytes, parts: bytes) -> bytes:
    """:func:`sums_of_partition` of bytes: PyTorch sends tensors between processes as open files, of which few fit."""
    return pickle.dumps(sums_of_partition(pickle.loads(worker), pickle.loads(parts)))


def _pickled_gradients(worker: bytes, part: bytes, sent: bytes) -> bytes:
    """The gradients in the parameters that the rows of a partition add, by one thread."""
    (parts, num_rows), of_sums = pickle.loads(part), pickle.loads(sent)
    summation: FeatureSummation = pickle.loads(worker)
    with one_thread():
        gradients = summation.gradients(of_sums, rows_of(parts), num_rows, summation.tensors(of_sums))
    return pickle.dumps(gradients)


def _added(first: Gradients, second: Gradients) -> Gradients:
    return [b if a is None else a if b is None else a + b for a, b in zip(first, second, strict=True)]
