"""Chunks of rows of tall matrices."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import torch
from torch import Tensor

from .._support.torch_names import is_exporting

_CHUNK_BYTES = 24 * 2**20
_SIZES = int | torch.SymInt | Tensor  # tensors in a trace


def row_chunks(num_rows: int, num_columns: int, itemsize: int = 8) -> list[slice]:
    """Slices of rows that keep a chunk of a tall matrix near 24 MiB, for ``itemsize`` bytes per number.

    A program of ``torch.export`` has one chunk of any number of rows.

    >>> row_chunks(10_000, 1024)
    [slice(0, 3072, None), slice(3072, 6144, None), slice(6144, 9216, None), slice(9216, 10000, None)]
    """
    is_whole = isinstance(num_rows, _SIZES) and isinstance(num_columns, _SIZES) and isinstance(itemsize, _SIZES)
    if not is_whole or num_rows < 0 or num_columns < 1 or itemsize < 1:
        raise ValueError(
            f"expected integers for rows, columns and bytes, got {num_rows!r}, {num_columns!r} and {itemsize!r}; "
            "rows may be 0, and the others are positive"
        )
    rows = min(max(_CHUNK_BYTES // (num_columns * itemsize), 512), 8192)
    if is_exporting() or 0 < num_rows <= rows:
        return [slice(0, num_rows)]
    return [slice(start, min(start + rows, num_rows)) for start in range(0, num_rows, rows)]


def joined(parts: Iterable[Tensor], num_rows: int, dim: int = -2) -> Tensor:
    """Chunks of rows, at least one, joined along ``dim``; without gradients each is copied as it comes, to save memory.

    >>> import torch
    >>> joined((torch.ones(rows, 3) for rows in (2, 4)), num_rows=6).shape
    torch.Size([6, 3])
    """
    rest = iter(parts)
    first = next(rest)
    if first.requires_grad:
        return torch.cat([first, *rest], dim=dim)
    shape = list(first.shape)
    shape[dim] = num_rows
    result, start = first.new_empty(shape), 0
    for part in itertools.chain([first], rest):
        result.narrow(dim, start, part.shape[dim]).copy_(part)
        start += part.shape[dim]
    return result
