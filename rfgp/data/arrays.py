"""Rows of tensors and arrays, in memory, mapped from files, or in chunks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from .._support import checks
from .base import Batch, CutSource, block_edges

_LONG = (np.longdouble, np.clongdouble)


class ArraySource(CutSource):
    """Rows of anything with a shape and slices: tensors, NumPy arrays and memory maps, Zarr arrays.

    Batches of tensors are views; others are copies, those of a Zarr array cut at its chunks.

    :param x: inputs (N, d).
    :param y: targets (N,) or (N, T); integers stay integers, which are class labels; default: batches (x,), for maps.
    :param noise: noise variances of the shape of y.
    :param batch_size: the largest number of rows in a batch.
    :param dtype: of x, noise and targets that are not integers; default: that of each array.
    :raises ValueError: for something that is no array, or where shapes do not go together.

    >>> import torch, rfgp
    >>> source = rfgp.data.ArraySource(torch.rand(100, 3), torch.rand(100), batch_size=30)
    >>> [len(x) for x, y in source], source.num_rows
    ([30, 30, 30, 10], 100)
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        noise: Any = None,
        *,
        batch_size: int = 65536,
        dtype: torch.dtype | None = None,
    ) -> None:
        if noise is not None and y is None:
            raise ValueError("expected targets y beside noise, got noise alone; pass y, or leave noise out")
        named = (("x", x), ("y", y), ("noise", noise))
        arrays = {name: value for name, value in named if value is not None or name == "x"}
        for name, value in arrays.items():
            check_array(value, name, (2,) if name == "x" else (1, 2), None if name == "x" else x.shape[0])
        if noise is not None and tuple(noise.shape) != tuple(y.shape):
            raise ValueError(
                f"expected noise of the shape of y, {tuple(y.shape)}, got {tuple(noise.shape)}; reshape it"
            )
        batch_size = checks.positive_integer("batch_size", batch_size)
        self.dtype = None if dtype is None else checks.floating_dtype("dtype", dtype)
        self.arrays, self.first = list(arrays.values()), 0
        self._name = ", ".join(map(_described, self.arrays))
        super().__init__(_edges(x, batch_size), batch_size)

    @property
    def name(self) -> str:
        return self._name

    def _read(self, edges: Sequence[int]) -> Iterator[Batch]:
        begin, end = 0, 0
        blocks: list[Tensor] = []
        for a, b in pairwise(edges):
            if b > end:
                chunk = _chunk_rows(self.arrays[0])
                begin, end = a, max(b, min((a // chunk + 1) * chunk, edges[-1]))
                blocks = [self._rows(k, begin, end) for k in range(len(self.arrays))]
            yield tuple(block[a - begin : b - begin] for block in blocks)

    def _rows(self, which: int, begin: int, end: int) -> Tensor:
        """The rows of one of the arrays as a tensor."""
        array = self.arrays[which][begin - self.first : end - self.first]
        values = array if isinstance(array, Tensor) else torch.from_numpy(_native(np.array(array)))
        if values.is_complex():
            return values if self.dtype is None else values.to(self.dtype.to_complex())
        if values.is_floating_point():
            return values if self.dtype is None else values.to(self.dtype)
        return values.long() if which == 1 else values.to(self.dtype or torch.get_default_dtype())

    def __getstate__(self) -> dict[str, Any]:
        begin, end = self.edges[0], self.edges[-1]
        arrays, first = self.arrays, self.first
        if all(isinstance(array, Tensor | np.ndarray) for array in arrays):
            arrays, first = [_portable(array[begin - first : end - first]) for array in arrays], begin
        return {**self.__dict__, "arrays": arrays, "first": first}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.arrays = [array.open() if isinstance(array, MappedFile) else array for array in self.arrays]


def check_array(value: Any, name: str, dims: tuple[int, ...], num_rows: int | None) -> None:
    """Raise where ``value`` has no numbers, or other numbers of dimensions or rows."""
    if not all(hasattr(value, member) for member in ("shape", "dtype", "__getitem__")):
        raise ValueError(f"expected an array for {name}, got {type(value).__name__}; use a tensor or a NumPy array")
    shape = tuple(value.shape)
    if len(shape) not in dims:
        wanted = "(N, d)" if dims == (2,) else "(N,) or (N, T)"
        raise ValueError(f"expected {name} of shape {wanted}, got {shape}; reshape it, a column to (-1, 1)")
    if shape[0] == 0:
        raise ValueError(f"expected at least one row in {name}, got shape {shape}; pass non-empty data")
    if num_rows is not None and shape[0] != num_rows:
        raise ValueError(
            f"expected {num_rows} rows in {name}, as many as in x, got shape {shape}; pass one per row of x"
        )
    if isinstance(value, Tensor):
        checks.tensor(value, name)
    elif np.dtype(value.dtype).kind not in "fiubc" or np.dtype(value.dtype) in _LONG:
        raise ValueError(f"expected numbers in {name}, got dtype {value.dtype}; convert them, such as to float64")
    elif hasattr(value, "toarray"):
        raise ValueError(f"expected a dense {name}, got a {type(value).__name__}; use {name}.toarray()")
    elif isinstance(value, np.ma.MaskedArray):
        raise ValueError(f"expected an array without a mask for {name}, got one; use {name}.filled(numpy.nan)")


def _chunk_rows(array: Any) -> int:
    """The number of rows that are stored together."""
    chunks = getattr(array, "chunks", None)
    return int(chunks[0]) if isinstance(chunks, tuple) and chunks else 1


def _edges(x: Any, batch_size: int) -> list[int]:
    """Batches of ``batch_size`` rows, or of whole chunks."""
    rows, size = x.shape[0], _chunk_rows(x)
    if size == 1:
        return [*range(0, rows, batch_size), rows]
    return block_edges((min(size, rows - begin) for begin in range(0, rows, size)), batch_size)


def _described(array: Any) -> str:
    file = MappedFile.of(array) if isinstance(array, np.ndarray) else None
    kind = f"{type(array).__name__} " if file is None else f"{file.path} "
    return f"{kind}{str(array.dtype).removeprefix('torch.')} {tuple(array.shape)}"


def _native(array: np.ndarray) -> np.ndarray:
    """In the byte order of the machine, and without unsigned integers, which PyTorch has few operations for."""
    dtype = np.dtype(np.int64) if array.dtype.kind == "u" else array.dtype.newbyteorder("=")
    return array.astype(dtype, copy=False)


def _portable(array: Any) -> Any:
    """What is pickled of an array in memory or in a mapped file: no rows but its own."""
    if isinstance(array, Tensor):
        return array.clone()
    return MappedFile.of(array) or array


@dataclass(frozen=True)
class MappedFile:
    """A NumPy array (dtype, shape, strides in bytes) at a byte offset of a file, to be opened in another process."""

    path: str
    dtype: np.dtype
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, array: np.ndarray) -> Self | None:
        """That of a memory map or a view of one; None for other arrays, and for copies on write."""
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        if not isinstance(root, np.memmap) or root.filename is None or root.mode == "c":
            return None
        offset = root.offset + array.ctypes.data - root.ctypes.data
        return cls(os.path.abspath(root.filename), array.dtype, offset, array.shape, array.strides)

    def open(self) -> np.ndarray:
        """The array, to be read alone."""
        return np.ndarray(self.shape, self.dtype, np.memmap(self.path, mode="r"), self.offset, self.strides)
