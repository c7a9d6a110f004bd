"""Where the values of a map go: arrays, a folder of NumPy files, a Zarr group, or a Parquet file."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..._support.files import whole_file, whole_folder
from ..._support.optional import require

_ROW_GROUP = 2**20
_CHUNK_ROWS, _CHUNK_BYTES = 2**16, 2**23
"""No chunk of a Zarr array has more rows, or more bytes."""


class Writer:
    """What takes the values of a map, part by part; other processes may write where ``is_shared``."""

    is_shared = False

    def write(self, start: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Take the values of rows."""
        raise NotImplementedError


@contextlib.contextmanager
def opened(out: Any, layout: Layout, starts: Sequence[int]) -> Iterator[Writer]:
    """What takes the values of a map; files have their name in the end, and only where nothing is raised."""
    if not isinstance(out, str | os.PathLike | Mapping):
        raise ValueError(f"expected a path, or arrays by name, for out, got {type(out).__name__}; pass one of these")
    if isinstance(out, Mapping):
        yield ArrayWriter(out, layout)
        return
    path = Path(out)
    _check_path(path, layout)
    if path.suffix == ".parquet":
        with whole_file(path) as file, contextlib.closing(ParquetWriter(file, layout)) as parquet:
            yield parquet
        return
    with whole_folder(path) as folder:
        yield ZarrWriter(folder, layout, starts) if path.suffix == ".zarr" else NumpyWriter(folder, layout)


def _check_path(path: Path, layout: Layout) -> None:
    """Raise a ValueError where a path is not one of a map, or something else is there."""
    if path.suffix not in ("", ".zarr", ".parquet"):
        raise ValueError(
            f"expected a path that ends in .zarr or .parquet, or a folder without an ending for NumPy files, got "
            f"{path.name}; choose one of these"
        )
    if not path.resolve().parent.is_dir():
        raise ValueError(f"expected the folder {path.resolve().parent} for {path.name}, got none; make it first")
    if path.suffix == ".parquet" or not path.exists():
        return
    files = {"mean", "variance", "zarr.json"} if path.suffix == ".zarr" else {"mean.npy", "variance.npy"}
    others = sorted({entry.name for entry in path.iterdir()} - files) if path.is_dir() else [path.name]
    if others:
        raise ValueError(
            f"expected {path} to be an older map, or not to be there, got {others[0]} in it; choose another"
        )


class Layout(dict[str, tuple[tuple[int, ...], np.dtype]]):
    """Shapes and dtypes of the arrays of a map, by name."""

    @classmethod
    def of(cls, num_rows: int, example: Mapping[str, np.ndarray]) -> Layout:
        """That of a map of so many rows, from the values of one."""
        return cls({name: ((num_rows, *values.shape[1:]), values.dtype) for name, values in example.items()})

    def empty(self) -> dict[str, np.ndarray]:
        """Such arrays in memory."""
        return {name: np.empty(shape, dtype) for name, (shape, dtype) in self.items()}


class ArrayWriter(Writer):
    """Arrays by name, such as those of a dictionary or of a Zarr group."""

    def __init__(self, arrays: Any, layout: Layout) -> None:
        if not hasattr(arrays, "__getitem__") or not hasattr(arrays, "__contains__"):
            raise ValueError(
                f"expected a path or a mapping with arrays for out, got {type(arrays).__name__}; such as a dictionary"
            )
        self.arrays = {}
        for name, (shape, dtype) in layout.items():
            if name not in arrays:
                raise ValueError(f"expected an array {name!r} in out, got none; add one of shape {shape}")
            self.arrays[name] = arrays[name]
            if not all(hasattr(arrays[name], member) for member in ("shape", "dtype", "__setitem__")):
                raise ValueError(
                    f"expected an array {name!r} in out, got {type(arrays[name]).__name__}; make a NumPy array of it"
                )
            if tuple(self.arrays[name].shape) != shape:
                raise ValueError(
                    f"expected an array {name!r} of shape {shape} in out, got {tuple(self.arrays[name].shape)}; make "
                    f"it of that shape and {dtype}"
                )
            kind = getattr(arrays[name], "dtype", None)
            if not isinstance(kind, np.dtype) or not np.can_cast(dtype, kind, "same_kind"):
                raise ValueError(f"expected an array {name!r} of {dtype} in out, got {kind}; make a NumPy array of it")

    def write(self, start: int, arrays: Mapping[str, np.ndarray]) -> None:
        for name, values in arrays.items():
            self.arrays[name][start : start + len(values)] = values


class NumpyWriter(Writer):
    """A folder with a NumPy file for each array; rows are written without a memory map, whose pages count as memory."""

    is_shared = True

    def __init__(self, folder: Path, layout: Layout) -> None:
        self.folder, self.offsets = folder, {}
        for name, (shape, dtype) in layout.items():
            file = np.lib.format.open_memmap(self._path(name), mode="w+", dtype=dtype, shape=shape)
            self.offsets[name] = int(file.offset)
            del file

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npy"

    def write(self, start: int, arrays: Mapping[str, np.ndarray]) -> None:
        for name, values in arrays.items():
            with open(self._path(name), "r+b") as file:
                file.seek(self.offsets[name] + start * (values.nbytes // len(values)))
                file.write(np.ascontiguousarray(values).data)


class ZarrWriter(Writer):
    """A Zarr group with an array for each name; where parts have whole chunks, processes write at once."""

    def __init__(self, folder: Path, layout: Layout, starts: Sequence[int]) -> None:
        zarr = require("zarr", "zarr", "maps in .zarr", "big")
        common = math.gcd(*starts) or _CHUNK_ROWS
        self.is_shared = common >= 1024
        self.folder = folder
        group = zarr.open_group(folder, mode="w")
        for name, (shape, dtype) in layout.items():
            rows = _chunk_rows(common if self.is_shared else _CHUNK_ROWS, dtype.itemsize * math.prod(shape[1:]))
            group.create_array(name, shape=shape, chunks=(min(rows, shape[0]), *shape[1:]), dtype=dtype)

    def write(self, start: int, arrays: Mapping[str, np.ndarray]) -> None:
        group = require("zarr", "zarr", "maps in .zarr", "big").open_group(self.folder, mode="r+")
        for name, values in arrays.items():
            group[name][start : start + len(values)] = values


class ParquetWriter(Writer):
    """A Parquet file with the columns mean and variance, or mean_0, mean_1 and so on for several outputs."""

    def __init__(self, path: Path, layout: Layout) -> None:
        self.arrow = require("pyarrow", "pyarrow", "maps in .parquet", "big")
        if any(dtype.kind == "c" for _, dtype in layout.values()):
            raise ValueError("expected real means for a Parquet file, got complex ones; use a folder or .zarr")
        fields = [
            (column, self.arrow.from_numpy_dtype(dtype))
            for name, (shape, dtype) in layout.items()
            for column in _columns(name, shape)
        ]
        parquet = require("pyarrow.parquet", "pyarrow", "maps in .parquet", "big")
        self.schema = self.arrow.schema(fields)
        self.writer = parquet.ParquetWriter(path, self.schema)
        self.waiting: list[Any] = []

    def write(self, start: int, arrays: Mapping[str, np.ndarray]) -> None:
        columns = [column for values in arrays.values() for column in (values.T if values.ndim > 1 else values[None])]
        of_arrow = [self.arrow.array(np.ascontiguousarray(column)) for column in columns]
        self.waiting.append(self.arrow.table(of_arrow, schema=self.schema))
        if sum(table.num_rows for table in self.waiting) >= _ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self.waiting:
            self.writer.write_table(self.arrow.concat_tables(self.waiting), row_group_size=_ROW_GROUP)
        self.waiting = []

    def close(self) -> None:
        """Write what waits, and what ends a Parquet file."""
        self._flush()
        self.writer.close()


def _columns(name: str, shape: Sequence[int]) -> list[str]:
    return [name] if len(shape) == 1 else [f"{name}_{index}" for index in range(shape[1])]


def _chunk_rows(rows: int, row_bytes: int) -> int:
    """As many rows as a chunk may have, which divide those of every part."""
    while rows % 2 == 0 and (rows > _CHUNK_ROWS or rows * row_bytes > _CHUNK_BYTES):
        rows //= 2
    return rows
