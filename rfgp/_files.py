"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_whole(path: str | os.PathLike[str], write: Callable[[Path], Any]) -> Path:
    """Write a file under a temporary name beside it, then rename it.

    :param path: the file.
    :param write: writes the content to the path it is given.
    :returns: the file.
    """
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.resolve().parent, prefix=f".{target.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        temporary.chmod(0o644)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target
