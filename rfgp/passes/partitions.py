"""Partitions of rows: a task has one of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._support import checks
from ..data import ArraySource, Source
from ..data.batches import Batch, batches

ROWS = 65536
"""How many rows a partition of a source has, about."""


class Partition(NamedTuple):
    """Rows that one task sums: a name for errors, and re-iterable batches that can be pickled."""

    name: str
    batches: Iterable[tuple[Tensor, ...]]

    def rows(self) -> Iterator[Batch]:
        """The batches that have rows."""
        return rows_of(self.batches)


class Partitions:
    """The partitions that a model is given, or those of its rows, whose sizes the rows alone decide.

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
            copies = _copied(part)
            end = begin + sum(len(batch[0]) for batch in copies)
            yield Partition(f"partition {number} (rows {begin} to {end})", copies)
            begin = end


def rows_of(parts: Iterable[tuple[Tensor, ...]]) -> Iterator[Batch]:
    """The batches of a partition that have rows, copied so that strides are the same in all processes."""
    for x, y, noise in batches(parts, None, None):
        if len(x):
            yield _aligned(x), _aligned(y), None if noise is None else _aligned(noise)


def _aligned(values: Tensor) -> Tensor:
    return values.clone(memory_format=torch.contiguous_format)


def _copied(part: Any) -> list[Any]:
    """The batches of a partition, without the rows that views share their memory with."""
    if not isinstance(part, list | tuple) or not part:
        raise ValueError(
            f"expected a source, a list of batches or a tuple (x, y) as partition, got {part!r}; pass a list of these"
        )
    rows = list(batches([part] if isinstance(part[0], Tensor) else part, None, None))
    for value in itertools.chain(*rows):
        if value is not None:
            checks.instance("every part of a batch", value, Tensor, "a torch.Tensor", "use torch.as_tensor")
    return [tuple(None if value is None else value.clone() for value in batch) for batch in rows]
