"""Whether stored figures are of the code as it is, and equal to what pages say."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

from .cells import CELLS
from .papers.table import is_written
from .plan import HERE, Script, scripts
from .runs import read

ROOT = HERE.parent


def problems(results: Path) -> list[str]:
    """What is wrong with the stored results, in words; none where all is well.

    A result is old where a file has changed since its commit that its script imports, the script itself included.
    """
    found = []
    for script in scripts():
        commit = commit_of(script, results)
        if not script.result(results).exists():
            found += [] if script.wanted else [f"{script.name}: no result"]
        elif not commit:
            found.append(f"{script.name}: no commit")
        elif changed := changed_since(commit, script.file):
            found.append(f"{script.name}: {changed} of the files that it measures changed since {commit[:8]}")
    if not is_written():
        found.append("the table of the papers differs from their results: python -m benchmarks.papers --table")
    return found + [problem for cell in CELLS for problem in cell.problems(ROOT, results)]


def commits(results: Path) -> Counter[str]:
    """How many results are of which commit."""
    return Counter(commit for script in scripts() if (commit := commit_of(script, results)))


def commit_of(script: Script, results: Path) -> str:
    """The commit of a stored result, or nothing."""
    return str(read(script.result(results)).get("environment", {}).get("commit", ""))


def changed_since(commit: str, script: Path) -> int:
    """How many files that a script imports, itself included, differ from a commit; all of them for an unknown one."""
    own = {str(path.relative_to(ROOT)) for path in imported(script)}
    done = subprocess.run(
        ["git", "diff", "--name-only", commit, "--", "rfgp", "benchmarks"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return len(own) if done.returncode else len(own & set(done.stdout.split()))


@cache
def imported(path: Path) -> frozenset[Path]:
    """The files of this repository that a file needs: itself, what it imports, and what these import."""
    found, waiting = set(), [path]
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += _imports(file)
    return frozenset(found)


@cache
def _imports(path: Path) -> tuple[Path, ...]:
    """The files of this repository that a file imports itself."""
    package = path.parent.relative_to(ROOT).parts
    names: set[tuple[str, ...]] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {tuple(alias.name.split(".")) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = (*base, *((node.module or "").split(".") if node.module else ()))
            names |= {module, *((*module, alias.name) for alias in node.names)}
    candidates = [place for name in names for place in (ROOT.joinpath(*name), HERE.joinpath(*name))]
    files = [file for place in candidates for file in (place.with_suffix(".py"), place / "__init__.py")]
    return tuple(file for file in files if file.is_file())
