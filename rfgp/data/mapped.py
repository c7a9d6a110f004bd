"""Rows of a source after a function, such as a scaling."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .base import Batch, Source, check_source


class MappedSource(Source):
    """Batches of a source after a function of a batch, such as :class:`Standardize`.

    :param source: whose batches are changed.
    :param function: takes the tensors of a batch, and returns those of the new one, with as many rows. To be pickled it
        is a function of a module, or an instance of a class.
    :raises ValueError: for something that is no source or no function.

    >>> import torch, rfgp
    >>> source = rfgp.data.ArraySource(torch.ones(5, 2), torch.ones(5))
    >>> halved = rfgp.data.MappedSource(source, lambda x, y: (x / 2.0, y))
    >>> next(iter(halved))[0][0]
    tensor([0.5000, 0.5000])
    """

    def __init__(self, source: Source, function: Callable[..., Batch]) -> None:
        self.source = check_source(source)
        if not callable(function):
            raise ValueError(f"expected a function of a batch, got {type(function).__name__}; pass one of x and y")
        self.function = function

    @property
    def num_rows(self) -> int | None:
        return self.source.num_rows

    @property
    def first_row(self) -> int:
        return self.source.first_row

    @property
    def description(self) -> str:
        name = getattr(self.function, "__qualname__", None) or repr(self.function)
        return f"{self.source.description}, after {name}"

    def batches(self, start: int = 0) -> Iterator[Batch]:
        return (self.function(*batch) for batch in self.source.batches(start))

    def partitions(self, count: int) -> list[Source]:
        return [MappedSource(part, self.function) for part in self.source.partitions(count)]
