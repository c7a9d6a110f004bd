"""Sources whose rows are numbered: how these are cut into batches and parts."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Self

from .. import _checks
from .base import Batch, Source


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
        count = _checks.positive_integer("count", count)
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
    """The edges of batches of rows that are stored in blocks, which are best read whole.

    A batch has as many whole blocks as it can; a block of more rows than a batch is cut, into full batches and a rest.
    """
    edges = [0]
    known = 0
    for rows in blocks:
        if known + rows - edges[-1] > batch_size:
            edges += [known] * (known > edges[-1]) + list(range(known + batch_size, known + rows, batch_size))
        known += rows
    return edges + [known] * (known > edges[-1])
