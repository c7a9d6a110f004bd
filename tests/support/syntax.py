"""The syntax of files, which several tests read."""

import ast
import functools
from pathlib import Path


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """The nodes of a file's syntax tree; the first is the module."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))))
