"""Whether stored figures are of one commit and of the code as it is, and equal to what pages say."""

from __future__ import annotations

from pathlib import Path

from .executed import functions_of, read
from .freshness import ROOT, changed_since
from .pages import CELLS
from .papers.table import is_written
from .plan import Script, scripts


def problems(results: Path) -> list[str]:
    """What is wrong with the stored results, in words; none where all is well.

    A result is old where code has changed since its commit that its script executes. All are of one commit, but those
    that need what only the user has, such as an interpreter with peers.
    """
    found: list[str] = []
    measured: set[str] = set()
    for script in scripts():
        commit = commit_of(script, results)
        measured |= {commit} if commit and not script.wanted else set()
        if not script.result(results).exists():
            found += [] if script.wanted else [f"{script.name}: no result"]
        elif not commit:
            found.append(f"{script.name}: no commit")
        elif changed := changed_since(commit, script.file, functions_of(script, results)):
            shown = f"{', '.join(changed[:3])}{' and others' if len(changed) > 3 else ''}"
            found.append(f"{script.name}: what it measures changed since {commit[:8]}, in {shown}")
    if len(measured) > 1:
        found.append(f"results are of {len(measured)} commits, expected one: python -m benchmarks run")
    if not is_written():
        found.append("the table of the papers differs from their results: python -m benchmarks.papers --table")
    return found + [problem for cell in CELLS for problem in cell.problems(ROOT, results)]


def commits(results: Path) -> dict[str, list[str]]:
    """The names of results under the commits at which they were measured, the largest group first."""
    found: dict[str, list[str]] = {}
    for script in scripts():
        if commit := commit_of(script, results):
            found.setdefault(commit, []).append(script.name)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def commit_of(script: Script, results: Path) -> str:
    """The commit of a stored result, or nothing."""
    return str(read(script.result(results)).get("environment", {}).get("commit", ""))
