"""What a script measures: the files that it imports, and whether they have changed since a commit."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent


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
