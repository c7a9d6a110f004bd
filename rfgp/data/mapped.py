"""Rows of a source after a function, such as a scaling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from .base import Batch, Source, check_source


class MappedSource(Source):
    """Batches of a source after a function of a batch, such as :class:`Standardize`.

    :param source: whose batches are changed.
    :param function: takes the tensors of a batch, and returns those of the new one, with as many rows. To be pickled it
        is a function of a module, or an instance of a class.
    :raises ValueError: for something that is no source or no function, and where the function returns no batch of as
        many rows.

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
        return (self._mapped(batch) for batch in self.source.batches(start))

    def _mapped(self, batch: Batch) -> Batch:
        """The batch that the function makes of one, checked."""
        made = self.function(*batch)
        is_batch = isinstance(made, tuple | list) and all(isinstance(values, Tensor) for values in made)
        if not is_batch or not 1 <= len(made) <= 3:
            raise ValueError(f"expected a batch (x,), (x, y) or (x, y, noise), got {_kind(made)}; return a tuple")
        if any(values.shape[:1] != batch[0].shape[:1] for values in made):
            raise ValueError(
                f"expected a batch of {len(batch[0])} rows as before the function, got shapes "
                f"{[tuple(values.shape) for values in made]}; leave no row out"
            )
        return tuple(made)

    def partitions(self, count: int) -> list[Source]:
        return [MappedSource(part, self.function) for part in self.source.partitions(count)]


def _kind(made: Any) -> str:
    """What a function returned, in words."""
    if not isinstance(made, tuple | list):
        return type(made).__name__
    return f"({', '.join(type(value).__name__ for value in made)})"
