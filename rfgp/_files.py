"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # where there are no locks, files of killed processes are left alone
    fcntl = None  # type: ignore[assignment]


def write_whole(path: str | os.PathLike[str], write: Callable[[Path], Any]) -> Path:
    """Write a file under a temporary name beside it, sync it to the disk, then rename it.

    An existing file keeps its mode, and a symbolic link its place: the file that it points to is replaced. Temporary
    files that killed processes have left for the same file are removed.

    :param path: the file.
    :param write: writes the content to the path it is given.
    :returns: the file.
    """
    target = Path(path).resolve()
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    _remove_left_over(target)
    with _temporary(target, 0o666 if mode is None else 0o600) as (temporary, handle):
        write(temporary)
        if mode is not None:
            temporary.chmod(mode)
        os.fsync(handle)
        temporary.replace(target)
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with contextlib.suppress(OSError):  # some file systems cannot sync a folder
                os.fsync(folder)
        finally:
            os.close(folder)
    return Path(path)


@contextlib.contextmanager
def _temporary(target: Path, mode: int) -> Iterator[tuple[Path, int]]:
    """A new file beside the target, and its handle, locked where that is possible; it is gone afterwards."""
    temporary = target.parent / f".{target.name}.{secrets.token_hex(8)}.tmp"
    handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
    try:
        if fcntl is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield temporary, handle
    finally:
        os.close(handle)
        temporary.unlink(missing_ok=True)


def _remove_left_over(target: Path) -> None:
    """Remove temporary files for the target that no living process has locked."""
    if fcntl is None or not target.parent.is_dir():
        return
    own = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{16}}\.tmp")
    for entry in target.parent.iterdir():
        if not own.fullmatch(entry.name):
            continue
        with contextlib.suppress(OSError):  # locked by a writer, or gone
            handle = os.open(entry, os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                entry.unlink()
            finally:
                os.close(handle)
