"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # where there are no locks, files of killed processes are left alone
    fcntl = None  # type: ignore[assignment]


_TRIES = 20
"""How often a temporary file is made that others have cleared."""


def write_whole(path: str | os.PathLike[str], write: Callable[[Path], Any]) -> Path:
    """Write a file as :func:`whole_file` does."""
    with whole_file(path) as temporary:
        write(temporary)
    return Path(path)


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary name beside a file, which replaces it in the end, synced to the disk.

    Modes and symbolic links stay. Temporary files that killed processes have left for the same file are removed.
    """
    target = Path(path).resolve()
    if not target.parent.is_dir():
        raise ValueError(f"expected the folder {target.parent} for {target.name}, got none; make it first")
    if target.exists() and not target.is_file():
        got = "a folder" if target.is_dir() else "a device or a pipe"
        raise ValueError(f"expected a file, or none, at {target}, got {got}; choose another name")
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    _remove_left_over(target)
    with _temporary(target, 0o666 if mode is None else 0o600) as (temporary, handle):
        yield temporary
        if mode is not None:
            temporary.chmod(mode)
        os.fsync(handle)
        temporary.replace(target)
    _sync_folder(target.parent)


@contextlib.contextmanager
def whole_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary folder beside a folder, which replaces it in the end; what killed processes have left is removed."""
    target = Path(path).resolve()
    _remove_left_over(target)
    with _temporary_folder(target) as temporary:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _sync(file, os.O_RDWR)
        if target.exists():
            target.rename(old := _temporary_name(target))
            temporary.rename(target)
            shutil.rmtree(old, ignore_errors=True)
        else:
            temporary.rename(target)
    _sync_folder(target.parent)


def _sync(path: Path, flags: int) -> None:
    """Have the system write what it holds of a file or folder to the disk."""
    handle = os.open(path, flags)
    try:
        with contextlib.suppress(OSError):  # some file systems cannot sync a folder
            os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    if hasattr(os, "O_DIRECTORY"):
        _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _temporary_name(target: Path) -> Path:
    return target.parent / f".{target.name}.{secrets.token_hex(8)}.tmp"


def _lock(handle: int) -> None:
    """Mark what is being written, where there are locks."""
    if fcntl is not None:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)


def _locked(target: Path, make: Callable[[Path], int]) -> tuple[Path, int]:
    """A new file or folder beside the target and its handle, locked where possible; made again if it was cleared."""
    for _ in range(_TRIES):
        temporary = _temporary_name(target)
        try:
            handle = make(temporary)
        except FileNotFoundError:
            if target.parent.is_dir():
                continue
            raise
        _lock(handle)
        if temporary.exists():
            return temporary, handle
        os.close(handle)
    raise ValueError(f"expected a folder that takes files at {target.parent}, got one that takes none; choose another")


@contextlib.contextmanager
def _temporary(target: Path, mode: int) -> Iterator[tuple[Path, int]]:
    """A new file beside the target, and its handle, locked where that is possible; it is gone afterwards."""
    temporary, handle = _locked(target, lambda name: os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode))
    try:
        yield temporary, handle
    finally:
        os.close(handle)
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _temporary_folder(target: Path) -> Iterator[Path]:
    """A new folder beside the target, locked where that is possible; it is gone afterwards."""
    temporary, handle = _locked(target, _open_new_folder)
    try:
        yield temporary
    finally:
        os.close(handle)
        shutil.rmtree(temporary, ignore_errors=True)


def _open_new_folder(name: Path) -> int:
    """The handle of a new folder, or of nothing where folders have none."""
    name.mkdir()
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY) if hasattr(os, "O_DIRECTORY") else os.open(os.devnull, 0)


def _remove_left_over(target: Path) -> None:
    """Remove temporary files and folders for the target that no living process has locked."""
    if fcntl is None or not target.parent.is_dir():
        return
    temporary_name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{16}}\.tmp")
    for entry in target.parent.iterdir():
        if not temporary_name.fullmatch(entry.name):
            continue
        with contextlib.suppress(OSError):  # locked by a writer, or gone
            handle = os.open(entry, os.O_RDONLY if entry.is_dir() else os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            finally:
                os.close(handle)
