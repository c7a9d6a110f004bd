"""Archives of ``torch.save``, which take as much memory as they have bytes."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import torch
from torch import Tensor


def write(content: Any, file: BinaryIO) -> None:
    """Write an archive."""
    try:
        torch.save(content, file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def read(file: BinaryIO) -> Any:
    """What is in an archive, on the CPU: tensors with all their numbers in the file, and containers of them."""
    start = file.tell()
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
    is_packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
    if is_packed or sum(member.file_size for member in members) > file.seek(0, 2) - start:
        raise ValueError("expected an archive as torch.save writes it, got a packed one; save it again")
    file.seek(start)
    content = torch.load(file, map_location="cpu", weights_only=True)
    _check(content)
    return content


def _check(content: Any) -> None:
    """Raise where a tensor, on any level, is larger than its part of the file."""
    if isinstance(content, Mapping):
        for value in content.values():
            _check(value)
    elif isinstance(content, list | tuple):
        for value in content:
            _check(value)
    elif isinstance(content, Tensor) and not _is_whole(content):
        raise ValueError("expected tensors with all their numbers, got one that repeats or lacks some; save it again")


def _is_whole(value: Tensor) -> bool:
    is_plain = type(value) in (Tensor, torch.nn.Parameter) and value.layout is torch.strided
    if not is_plain or value.is_quantized or value.device.type != "cpu":
        return False
    return value.numel() * value.element_size() <= value.untyped_storage().nbytes()
