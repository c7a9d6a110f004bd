"""The results of a study, and their files."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from .._support import checks, files
from ..training import FitStage, FitSummary
from .checkpoint import FOLDER
from .differences import compare
from .page import page
from .record import StudyRecord
from .runs import KernelScore, Run

FILES = ("results.json", "study.png", "report.html")
"""The files that a study writes."""


class StudyResult(StudyRecord):
    """All that a study measured, and under which circumstances; the fields are those of its base.

    >>> import rfgp
    >>> data = rfgp.study.datasets.load("diabetes")
    >>> settings = {"methods": ["landmarks"], "num_features": [8], "num_seeds": 1, "exact_limit": 20}
    >>> result = rfgp.study.run(data, progress=False, **settings)
    >>> result.exact_name, [run.method for run in result.runs]
    ('exact, 20 rows', ['landmarks'])
    """

    def save(self, directory: str | Path) -> list[Path]:
        """Write ``results.json``, ``study.png`` and ``report.html``, each whole or not at all; returns their paths."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"
        figure, html = self.figure(), page(self).html()
        return [
            files.write_whole(folder / FILES[0], lambda path: path.write_text(text, encoding="utf-8")),
            files.write_whole(folder / FILES[1], lambda path: figure.savefig(path, format="png", dpi=200)),
            files.write_whole(folder / FILES[2], lambda path: path.write_text(html, encoding="utf-8")),
        ]


def load(path: str | Path) -> StudyResult:
    """The results of a study from its directory, or from its ``results.json``.

    :raises ValueError: where there are no results of a study.

    >>> load("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: expected a directory with results.json of a study, got 'nowhere' without; check the path
    """
    checks.instance("path", path, (str, os.PathLike), "a path", "pass a string or a pathlib.Path")
    file = Path(path)
    file = file / FILES[0] if file.is_dir() else file
    if not file.is_file():
        raise ValueError(f"expected a directory with {FILES[0]} of a study, got {str(path)!r} without; check the path")
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        settings = record["settings"]
        if "auto" in settings:
            settings["auto"] = {int(width): name for width, name in settings["auto"].items()}
        result = StudyResult(
            settings,
            record["data"],
            training_summary(record["training"]),
            record["environment"],
            Run.from_dict(record["exact"]),
            tuple(Run.from_dict(run) for run in record["runs"]),
            tuple(Run.from_dict(run) for run in record.get("baselines", [])),
            tuple(KernelScore.from_dict(candidate) for candidate in record.get("kernels", [])),
            record.get("request", {}),
        )
        _ = result.table(), str(compare(result, result))  # which need all that a study has
    except Exception as error:  # a file may say anything
        raise ValueError(
            f"expected the results of a study in {str(file)!r}, got another file ({type(error).__name__}: {error}); "
            "name the directory that a study wrote"
        ) from None
    return result


def training_summary(record: dict[str, Any]) -> FitSummary:
    """How parameters were learned, from what JSON made of it."""
    before = record["initial_log_marginal_likelihood"]
    stages = tuple(FitStage(**stage) for stage in record.get("stages", ()))
    changed = {"initial_log_marginal_likelihood": math.nan if before is None else before, "stages": stages}
    return FitSummary(**{**record, **changed, "trace": tuple(record.get("trace", ()))})


def open_directory(name: str | Path, resume: bool = False, force: bool = False) -> Path:
    """The directory of the results, made where it does not exist, once a file has been written to it."""
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
