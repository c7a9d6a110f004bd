"""NPZ archives of plain arrays, whose sizes are known before anything is read."""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from .. import _checks

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
    _checks.fits_in_memory(8.0 * _COPIES * elements, what, "save fewer rows, or only the arrays that are needed")
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
