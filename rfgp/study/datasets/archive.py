"""The user's own arrays: NPZ files."""

from __future__ import annotations

import math
import os
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from ..._support import checks
from .base import Dataset, Scaling, Task, from_arrays, split, typed_targets


def read_archive(
    path: str | Path,
    target: str,
    inputs: str = "x",
    task: Task | None = None,
    scaling: Scaling = "standardize",
) -> Dataset:
    """Read an NPZ file, and keep a random fifth of its rows for testing.

    Integers, booleans and strings as targets are class labels, in sorted order; other numbers make a regression.

    :param path: a file that ends in .npz.
    :param target: the name of the array of targets (N,).
    :param inputs: the name of the array of inputs (N, d).
    :param task: "classification" or "regression"; default: as the targets tell.
    :param scaling: the scaling that suits the inputs.
    :raises ValueError: for a bad file, array or value, and for integers that may be either without a task.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "images.npz")
    ...     np.savez(path, pixels=np.eye(20), labels=["disc", "ring"] * 10)
    ...     data = read_archive(path, "labels", inputs="pixels")
    >>> data.task, data.num_classes, tuple(data.x_train.shape)
    ('classification', 2, (16, 20))
    """
    checks.instance("path", path, (str, os.PathLike), "a path", "pass a string or a pathlib.Path")
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise ValueError(
            f"expected a file that ends in .npz, got {str(path)!r}; read a table by rfgp.study.tables.read"
        )
    x, values = _arrays(path, str(target), inputs)
    y, found_task, _ = typed_targets(values, task, f"target {target!r} of {path.name}")
    parts = split(path.name, x, y)
    return from_arrays(path.stem, parts, found_task, provenance=str(path), licence="that of the file", scaling=scaling)


def _arrays(path: Path, target: str, inputs: str) -> tuple[np.ndarray, np.ndarray]:
    arrays = read_arrays(path)
    for key, role in ((inputs, "inputs"), (target, "target")):
        if key not in arrays:
            raise ValueError(
                f"expected one of the arrays of {path.name} ({', '.join(arrays)}) as the {role}, got "
                f"{key!r}; choose one of them"
            )
    x, y = arrays[inputs], arrays[target]
    if x.ndim != 2 or x.dtype.kind not in "fiub" or 0 in x.shape:
        raise ValueError(
            f"expected inputs {inputs!r} of {path.name} as an array (N, d) of numbers, got {x.dtype} of "
            f"shape {x.shape}; reshape it"
        )
    x = x.astype(np.float64)
    if not np.isfinite(x).all():
        raise ValueError(
            f"expected finite numbers in {inputs!r} of {path.name}, got {np.sum(~np.isfinite(x))} others; remove or "
            "impute such rows"
        )
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim != 1 or len(y) != len(x):
        raise ValueError(
            f"expected a target {target!r} of {path.name} of shape ({len(x)},), one per row of the inputs, "
            f"got {y.shape}; save one output"
        )
    return x, y


_COPIES = 8
_ENCRYPTED = 1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BROKEN = (zipfile.BadZipFile, ValueError, TypeError, EOFError, OSError, RuntimeError, zlib.error, struct.error)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an NPZ file by name."""
    if not path.is_file():
        raise ValueError(f"expected an existing file, got {str(path)!r}; check the path")
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
            elements = sum(_elements(archive, member) for member in members)
    except _BROKEN as error:
        raise _no_archive(path, error) from None
    what = f"{_COPIES} float64 copies of the {elements:,} elements of {path.name}"
    checks.fits_in_memory(8.0 * _COPIES * elements, what, "save fewer rows, or only the arrays that are needed")
    try:
        with zipfile.ZipFile(path) as archive:
            return {member.filename.removesuffix(".npy"): _array(archive, member) for member in members}
    except _BROKEN as error:
        raise _no_archive(path, error) from None


def _elements(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """The number of elements of an array, in units of float64, from headers that have to agree."""
    name = member.filename
    if member.flag_bits & _ENCRYPTED:
        raise ValueError(f"{name} is encrypted")
    if member.compress_type not in _METHODS:
        raise ValueError(f"{name} is compressed by method {member.compress_type}")
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise ValueError(f"{name} has version {version} of the format")
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
        there = member.file_size - stream.tell()
    if dtype.hasobject:
        raise ValueError(f"{name} has Python objects")
    claimed = math.prod(shape) * dtype.itemsize
    if claimed != there or min(shape, default=0) < 0:
        raise ValueError(f"the header of {name} claims {claimed:,} bytes where there are {there:,}")
    return max(math.prod(shape), math.ceil(claimed / 8))


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as stream:
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))


def _no_archive(path: Path, error: Exception) -> ValueError:
    return ValueError(
        f"expected a NumPy archive of plain arrays, got {str(path)!r}, which is not one ({error}); save it with "
        "numpy.savez"
    )
