"""Whether stored figures are of one commit, newer than the code that they measure, and equal to what pages say."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

from .cells import CELLS
from .plan import HERE, scripts
from .runs import RECORD, read

ROOT = HERE.parent


def problems(results: Path) -> list[str]:
    """What is wrong with the stored results, in words; none where all is well."""
    found = []
    names = [script.name for script in scripts()]
    files = [path for path in sorted(results.glob("*.json")) if path.name != RECORD]
    commits = {path: str(read(path).get("environment", {}).get("commit", "")) for path in files}
    found += [f"{name}: no result" for name in names if results / f"{name}.json" not in commits]
    found += [f"{path.stem}: no commit" for path, commit in commits.items() if not commit]
    counts = Counter(commit for commit in commits.values() if commit)
    if len(counts) > 1:
        found.append(f"results are of {len(counts)} commits; measure all on one")
    for path, commit in commits.items():
        script = HERE / f"{path.stem}.py"
        if commit and script.exists() and (changed := changed_since(commit, script)):
            found.append(f"{path.stem}: {changed} of the files that it measures changed since {commit[:8]}")
    return found + [problem for cell in CELLS for problem in cell.problems(ROOT, results)]


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
