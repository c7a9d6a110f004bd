"""Files of tensors by name, with a checksum."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from . import archives, checks, files

_MAGIC = b"rfgp sums, format 2\n"
_CHECKSUM_BYTES = hashlib.sha256().digest_size


def write(path: str | os.PathLike[str], tensors: Mapping[str, Any]) -> None:
    """Write tensors and strings by name to a file, under a temporary name first."""
    files.write_whole(path, functools.partial(_write, dict(tensors)))


def _write(tensors: dict[str, Any], path: Path) -> None:
    with path.open("w+b") as file:
        file.write(_MAGIC + bytes(_CHECKSUM_BYTES))
        archives.write(tensors, file)
        file.seek(len(_MAGIC) + _CHECKSUM_BYTES)
        digest = hashlib.file_digest(file, "sha256").digest()
        file.seek(len(_MAGIC))
        file.write(digest)


def read(
    path: str | os.PathLike[str], writer: str = "GramStatistics.save", advice: str = "save the statistics again"
) -> dict[str, Tensor]:
    """Read what :func:`write` wrote, to the CPU; a ValueError with advice for another file, or a damaged one."""
    checks.file("path", path, f"{writer} wrote")
    name = repr(os.fspath(path))
    with open(path, "rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ValueError(f"expected a file that {writer} wrote, got {name}, which starts otherwise; {advice}")
        wanted = file.read(_CHECKSUM_BYTES)
        start = file.tell()
        if hashlib.file_digest(file, "sha256").digest() != wanted:
            raise ValueError(
                f"expected {name} as {writer} wrote it, got another checksum; it is damaged or cut off; copy it "
                f"again, or {advice}"
            )
        file.seek(start)
        tensors: dict[str, Tensor] = archives.read(file)
        return tensors
