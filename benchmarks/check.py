"""Whether pages say what the stored results have; how old a result is, is a label and never a problem."""

from __future__ import annotations

from pathlib import Path

from .common import read
from .pages import CELLS
from .papers.table import is_written
from .plan import HERE, scripts


def problems(results: Path) -> list[str]:
    """Where pages differ from the stored results, in words; none where all is well."""
    is_old = not is_written()
    found = (
        ["the table of the papers differs from their results: python -m benchmarks.papers --table"] if is_old else []
    )
    return found + [problem for cell in CELLS for problem in cell.problems(HERE.parent, results)]


def labels(results: Path) -> dict[str, list[str]]:
    """The names of results by the commit, date and processor of their runs, the largest group first."""
    found: dict[str, list[str]] = {}
    for script in scripts():
        if run := read(script.result(results)).get("environment"):
            parts = (run.get("commit", "")[:12] or "no commit", run.get("date", "no date"), run.get("processor", ""))
            found.setdefault(", ".join(filter(None, parts)), []).append(script.name)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))
