"""What a source of rows is."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Self

from torch import Tensor

from .._support import checks

Batch = tuple[Tensor, ...]
"""A batch (x,), (x, y) or (x, y, noise)."""


def with_same_columns(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches, or a ValueError with the number of the first that has other columns than the first of all."""
    wanted: list[tuple[int, ...]] | None = None
    for number, batch in enumerate(batches, 1):
        columns = _columns(batch)
        wanted = columns if wanted is None else wanted
        for name, first, present in zip(("x", "y", "noise"), wanted, columns, strict=False):
            if present != first:
                raise ValueError(
                    f"expected {name} of shape {_shape(first)} in batch {number}, as in batch 1, "
                    f"got {_shape(present)}; give all batches the same columns"
                )
        yield batch


def _columns(batch: Any) -> list[tuple[int, ...]]:
    parts = batch if isinstance(batch, list | tuple) else ()
    return [tuple(part.shape[1:]) for part in parts if isinstance(part, Tensor)]


def _shape(columns: tuple[int, ...]) -> str:
    return f"(N, {', '.join(map(str, columns))})" if columns else "(N,)"


class Source(ABC):
    """Rows in batches, as often as wanted: the same batches in the same order at every pass.

    A model's ``condition`` and :func:`rfgp.fit` take it in place of tensors. It can be pickled, and opens its files
    anew in another process.

    >>> import rfgp, torch
    >>> source = rfgp.data.ArraySource(torch.randn(10, 2), torch.randn(10), batch_size=4)
    >>> source.num_rows, [len(x) for x, y in source]
    (10, [4, 4, 2])
    """

    @property
    @abstractmethod
    def num_rows(self) -> int | None:
        """The number of all rows; None where only a pass tells."""

    @property
    def first_row(self) -> int:
        """The number of the first row, which is not 0 in a part; rows of two parts never have the same number."""
        return 0

    @property
    @abstractmethod
    def description(self) -> str:
        """Files, columns and rows, as in "rows 300 to 400 of table.parquet"; equal for the same rows and batches."""

    @abstractmethod
    def batches(self, start: int = 0) -> Iterator[Batch]:
        """The batches from number ``start`` on; what comes before is not read where the format allows it."""

    @abstractmethod
    def partitions(self, count: int) -> list[Source]:
        """Contiguous parts that have all rows once, in order, with the batches of the source if these are enough."""

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.description})"


def check_source(value: Any) -> Source:
    """Return a source, or raise where ``value`` is none."""
    checks.instance("source", value, Source, "a source of rows", "use rfgp.data.ArraySource for tensors and arrays")
    return value


class CutSource(Source):
    """Rows that can be read from any number on."""

    def __init__(self, edges: Sequence[int], batch_size: int) -> None:
        self.edges, self.batch_size = list(edges), batch_size

    @property
    @abstractmethod
    def name(self) -> str:
        """What the rows are of, such as the name of a file."""

    @abstractmethod
    def _read(self, edges: Sequence[int]) -> Iterator[Batch]:
        """Batches of the rows between neighboring edges, of which there are at least two."""

    @property
    def num_rows(self) -> int:
        return self.edges[-1] - self.edges[0]

    @property
    def first_row(self) -> int:
        return self.edges[0]

    @property
    def description(self) -> str:
        return f"rows {self.edges[0]} to {self.edges[-1]} of {self.name}, in batches of up to {self.batch_size}"

    def batches(self, start: int = 0) -> Iterator[Batch]:
        edges = self.edges[check_start(start) :]
        return self._read(edges) if len(edges) > 1 else iter(())

    def partitions(self, count: int) -> list[Source]:
        count = checks.positive_integer("count", count)
        if self.num_rows < count:
            raise ValueError(
                f"expected at least {count} rows for {count} partitions, got {self.description}; use fewer"
            )
        edges = self.edges if len(self.edges) > count else even_edges(self.edges[0], self.edges[-1], count)
        last = len(edges) - 1
        cuts = [part * last // count for part in range(count + 1)]
        return [self._with(edges[a : b + 1]) for a, b in pairwise(cuts)]

    def _with(self, edges: Sequence[int]) -> Self:
        """The same source with other batches."""
        result = copy.copy(self)
        result.edges = list(edges)
        return result


def check_start(start: int) -> int:
    """Return ``start``, or raise where it is no integer of at least 0."""
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise ValueError(f"expected a number of batches of at least 0 for start, got {start!r}; use 0 for all batches")
    return start


def even_edges(begin: int, end: int, count: int) -> list[int]:
    """The edges of parts whose numbers of rows differ by one at most."""
    return [begin + (end - begin) * part // count for part in range(count + 1)]


def block_edges(blocks: Iterable[int], batch_size: int) -> list[int]:
    """The edges of batches of rows in stored blocks: whole blocks, or full batches of a larger block and a rest."""
    edges = [0]
    total = 0
    for rows in blocks:
        if total + rows - edges[-1] > batch_size:
            edges += [total] * (total > edges[-1]) + list(range(total + batch_size, total + rows, batch_size))
        total += rows
    return edges + [total] * (total > edges[-1])
