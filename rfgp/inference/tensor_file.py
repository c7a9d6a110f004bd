"""Files of tensors by name, with a checksum."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from .. import _checks, _files

_MAGIC = b"rfgp sums, format 2\n"
_CHECKSUM_BYTES = hashlib.sha256().digest_size


def write(path: str | os.PathLike[str], tensors: Mapping[str, Tensor]) -> None:
    """Write tensors to a file, under a temporary name first.

    :param path: the file to write.
    :param tensors: tensors by name.
    """
    _files.write_whole(path, functools.partial(_write, dict(tensors)))


def _write(tensors: dict[str, Tensor], path: Path) -> None:
    with path.open("w+b") as file:
        file.write(_MAGIC + bytes(_CHECKSUM_BYTES))
        torch.save(tensors, file)
        file.seek(len(_MAGIC) + _CHECKSUM_BYTES)
        digest = hashlib.file_digest(file, "sha256").digest()
        file.seek(len(_MAGIC))
        file.write(digest)


def read(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Read what :func:`write` wrote, to the CPU.

    :param path: the file to read.
    :raises ValueError: for another file, or one that has changed since.
    """
    _checks.instance("path", path, (str, os.PathLike), "a path", "pass a string or a pathlib.Path")
    name = repr(os.fspath(path))
    if os.path.isdir(path):
        raise ValueError(f"expected a file that GramStatistics.save wrote, got the folder {name}; name it")
    with open(path, "rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ValueError(
                f"expected a file that GramStatistics.save wrote, got {name}, which starts otherwise; save the "
                "statistics again"
            )
        wanted = file.read(_CHECKSUM_BYTES)
        start = file.tell()
        if hashlib.file_digest(file, "sha256").digest() != wanted:
            raise ValueError(
                f"expected {name} as GramStatistics.save wrote it, got another checksum; it is damaged or cut off; "
                "copy it again, or save the statistics again"
            )
        file.seek(start)
        tensors: dict[str, Tensor] = torch.load(file, map_location="cpu", weights_only=True)
        return tensors
