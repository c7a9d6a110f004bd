"""What a script measures: the files that it imports, and whether they have changed since a commit."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
VERSION = ROOT / "rfgp" / "_version.py"
"""What has nothing to measure."""


def changed_since(commit: str, script: Path) -> int:
    """How many files that a script imports, itself included, have other code than at a commit; all for an unknown one.

    Docstrings and comments are not measured, and may change.
    """
    own = {str(path.relative_to(ROOT)) for path in imported(script) - {VERSION}}
    done = _git("diff", "--name-only", commit, "--", "rfgp", "benchmarks")
    if done is None:
        return len(own)
    return sum(
        _code(_git("show", f"{commit}:{name}")) != _code((ROOT / name).read_text("utf-8"))
        for name in own & set(done.split())
    )


def _git(*words: str) -> str | None:
    """What git says, or None where it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return None if done.returncode else done.stdout


def _code(text: str | None) -> str:
    """The code of a file without its docstrings and comments, to be compared."""
    tree = ast.parse(text or "")
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [line for line in body if not _is_text(line)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


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
