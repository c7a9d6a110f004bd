"""What is sent to workers: bytes, and batches that are laid out the same way wherever they arrive."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from .batches import Batch, batches


def rows_of(parts: Iterable[tuple[Tensor, ...]]) -> Iterator[Batch]:
    """The batches of a partition that have rows, in memory of their own.

    Where products begin in memory, and with which strides, is then the same everywhere.
    """
    for x, y, noise in batches(parts, None, None):
        if len(x):
            yield _aligned(x), _aligned(y), None if noise is None else _aligned(noise)


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


def _aligned(values: Tensor) -> Tensor:
    return values.clone(memory_format=torch.contiguous_format)
