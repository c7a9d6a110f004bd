"""What a script measures: the functions that it executes, and whether they have changed since a commit."""

from __future__ import annotations

import ast
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
VERSION = ROOT / "rfgp" / "_version.py"
"""What has nothing to measure."""
RECORDS = {"environment"}
"""Functions that note what a run was of, and are not measured either."""


def changed_since(commit: str, script: Path, functions: Mapping[str, Iterable[str]] | None = None) -> list[str]:
    """The files whose code is another one than at a commit, for what a script executes; all for an unknown commit.

    Docstrings and comments are not measured, and may change.

    :param functions: names of functions by file; default: whole files, all that the script imports.
    """
    own = {str(path.relative_to(ROOT)) for path in imported(script) - {VERSION}} if functions is None else {*functions}
    done = _git("diff", "--name-only", commit, "--", "rfgp", "benchmarks")
    if done is None:
        return sorted(own)
    found = []
    for name in sorted(own & set(done.split())):
        before = Code.of(_git("show", f"{commit}:{name}"))
        after = Code.of((ROOT / name).read_text("utf-8") if (ROOT / name).exists() else None)
        if before.differs(after, None if functions is None else {*functions[name]} - RECORDS):
            found.append(name)
    return found


def _git(*words: str) -> str | None:
    """What git says, or None where it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return None if done.returncode else done.stdout


class Code:
    """The code of a file without its docstrings and comments, to be compared.

    :param functions: the code of functions and methods by their qualified names.
    :param others: all other statements of the file and its classes, but imports.
    """

    def __init__(self, functions: Mapping[str, list[str]], others: set[str]) -> None:
        self.functions, self.others = functions, others

    @classmethod
    @cache
    def of(cls, text: str | None) -> Code:
        """That of the text of a file; nothing where there is none."""
        tree = ast.parse(text or "")
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list):
                node.body = [line for line in body if not _is_text(line)]  # type: ignore[attr-defined]
        functions: dict[str, list[str]] = defaultdict(list)
        others: set[str] = set()
        waiting: list[tuple[str, ast.stmt]] = [("", line) for line in tree.body]
        for scope, line in waiting:
            if isinstance(line, ast.FunctionDef | ast.AsyncFunctionDef):
                functions[scope + line.name].append(ast.dump(line))
            elif isinstance(line, ast.ClassDef):
                waiting += [(f"{scope}{line.name}.", inner) for inner in line.body]
                line.body = []
                others.add(scope + ast.dump(line))
            elif not isinstance(line, ast.Import | ast.ImportFrom):
                others.add(scope + ast.dump(line))
        return cls(functions, others)

    def differs(self, after: Code, functions: Iterable[str] | None = None) -> bool:
        """Whether these functions have changed, or a statement beside the functions is gone; default: anything at all.

        New statements alone change nothing for functions that are as they were.
        """
        if functions is None:
            return (self.functions, self.others) != (after.functions, after.others)
        return any(self.functions.get(name) != after.functions.get(name) for name in functions) or bool(
            self.others - after.others
        )


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
