"""The files of a table."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import _checks


def files_of(paths: Any, ending: str) -> list[str]:
    """The absolute paths of the files that are meant, in order; those of a pattern or a folder by name."""
    if isinstance(paths, Sequence) and not isinstance(paths, str):
        found = [name for path in paths for name in files_of(path, ending)]
    else:
        if paths is None:
            raise ValueError("expected a path, got None; pass a file, a folder or a list of files")
        _checks.path("path", paths)
        name = os.fspath(paths)
        if Path(name).is_dir():
            found = [str(path) for path in sorted(Path(name).rglob(f"*{ending}"))]
        else:
            found = [name] if Path(name).exists() else sorted(glob.glob(name))
    if not found:
        raise ValueError(f"expected a file, a folder with {ending} files or a pattern, got {paths!r}; check the path")
    return [os.path.abspath(path) for path in found]


def joint_name(paths: Sequence[str]) -> str:
    """What to call files in a message."""
    return paths[0] if len(paths) == 1 else f"{len(paths)} files {paths[0]} to {paths[-1]}"
