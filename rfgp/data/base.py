"""What a source of rows is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor

from .. import _checks

Batch = tuple[Tensor, ...]
"""A batch (x,), (x, y) or (x, y, noise)."""


def with_same_columns(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches, or a ValueError with the number of the first that has other columns than the first of all."""
    wanted: list[tuple[int, ...]] | None = None
    for number, batch in enumerate(batches, 1):
        found = _columns(batch)
        wanted = found if wanted is None else wanted
        for name, first, own in zip(("x", "y", "noise"), wanted, found, strict=False):
            if own != first:
                raise ValueError(
                    f"expected {name} of shape {_shape(first)} in batch {number}, as in batch 1, got {_shape(own)}; "
                    "give all batches the same columns"
                )
        yield batch


def _columns(batch: Any) -> list[tuple[int, ...]]:
    parts = batch if isinstance(batch, list | tuple) else ()
    return [tuple(part.shape[1:]) for part in parts if isinstance(part, Tensor)]


def _shape(columns: tuple[int, ...]) -> str:
    return f"(N, {', '.join(map(str, columns))})" if columns else "(N,)"


class Source(ABC):
    """Rows in batches, as often as wanted: the same batches in the same order at every pass.

    A source is what a model's ``condition`` and :func:`rfgp.fit` take in place of tensors, and keeps no more
    than a few batches in memory. It can be pickled, and opens its files anew in another process.

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
        """Files, columns and rows, as in "rows 300 to 400 of table.parquet": rows count from 0, as in a slice.

        Sources of the same rows in the same batches have the same description.
        """

    @abstractmethod
    def batches(self, start: int = 0) -> Iterator[Batch]:
        """The batches from number ``start`` on, in order; what comes before is not read where the format allows it.

        :param start: the number of batches to leave out.
        """

    @abstractmethod
    def partitions(self, count: int) -> list[Source]:
        """Contiguous parts that have all rows once, in order.

        Where there are at least ``count`` batches, those of the parts are those of the source.

        :param count: how many parts.
        :raises ValueError: where there are fewer rows than parts, or where the format cannot be parted.
        """

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.description})"


def check_source(value: Any) -> Source:
    """Return a source, or raise where ``value`` is none."""
    _checks.instance("source", value, Source, "a source of rows", "use rfgp.data.ArraySource for tensors and arrays")
    return value
