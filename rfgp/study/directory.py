"""The directory of a study: it can be written to, and results in it are not lost by mistake."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from .checkpoint import FOLDER

FILES = ("results.json", "study.png", "report.html")
"""The files that a study writes."""


def open_directory(name: str | Path, resume: bool = False, force: bool = False) -> Path:
    """The directory of the results, made where it does not exist, once a file has been written to it.

    :param name: the directory.
    :param resume: whether a study in it is to go on.
    :param force: whether results in it may go; other files stay.
    :raises ValueError: where it cannot be written to, or has files and neither is wanted.
    """
    out = Path(name)
    if not str(name) or (out.exists() and not out.is_dir()):
        got = f"the file {str(name)!r}" if str(name) else "an empty name"
        raise ValueError(f"expected a directory for --out, got {got}; choose another")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out) as probe:
            probe.write(b"probe")
        content = sorted(path.name for path in out.iterdir())
    except OSError as error:
        raise ValueError(
            f"expected a directory that can be written to for --out, got {str(name)!r} ({error.strerror}); "
            "choose another"
        ) from None
    for result in FILES:
        if (out / result).is_dir():
            raise ValueError(f"expected to write {result} to --out, got a directory {str(out / result)!r}; move it")
    if force:
        shutil.rmtree(out / FOLDER, ignore_errors=True)
        for result in FILES:
            (out / result).unlink(missing_ok=True)
    elif content and not resume:
        raise ValueError(
            f"expected an empty directory for --out, got {str(name)!r} with {', '.join(content[:3])}"
            f"{', ...' if len(content) > 3 else ''}; go on with its study by --resume (resume=True), replace its "
            "results by --force (force=True), or choose another"
        )
    return out
