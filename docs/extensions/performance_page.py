"""The page of measured figures, made of the JSON files and figures of ``benchmarks/`` at the build."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common import is_value, records

if TYPE_CHECKING:
    from sphinx.application import Sphinx

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MAX_ROWS, MAX_COLUMNS = 24, 7
INTRODUCTION = """Performance
===========

What the benchmarks have measured: one section for each script of the folder ``benchmarks``, made of the files that it
has written. Every section names the commit, the date where it is known, and the processor of its run. Compare times
within a section only: machines differ, and some of them had other work. ``benchmarks/README.md`` tells how to run
the scripts.

"""


def results() -> list[Path]:
    """The files of results that say where they were measured."""
    files = sorted((BENCHMARKS / "results").glob("*.json"))
    return [path for path in files if "environment" in json.loads(path.read_text(encoding="utf-8"))]


def claim(script: Path) -> str:
    """What a script measures: the first paragraph of its docstring."""
    text = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def _cell(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < 1e9):
        return f"{int(value):,}"
    if isinstance(value, float):
        return f"{value:.3g}"
    return value.replace("*", "\\*").replace("|", "\\|")


def table(rows: list[tuple[str, dict[str, Any]]]) -> str:
    """A table of the first rows and columns, and how many rows it leaves out."""
    columns = list(dict.fromkeys(column for _, row in rows for column in row))[:MAX_COLUMNS]
    is_named = any(name for name, _ in rows)
    cells = [[*([""] if is_named else []), *columns]]
    for name, row in rows[:MAX_ROWS]:
        cells.append([*([name.replace("|", ", ")] if is_named else []), *(_cell(row.get(c)) for c in columns)])
    text = ".. list-table::\n   :header-rows: 1\n   :widths: auto\n\n"
    for line in cells:
        text += "".join(f"   {'*' if i == 0 else ' '} - {cell}".rstrip() + "\n" for i, cell in enumerate(line))
    left = len(rows) - MAX_ROWS
    return text + (f"\n*{left} more rows are in the file.*\n" if left > 0 else "") + "\n"


def section(path: Path) -> str:
    """What one file of results shows."""
    content = json.loads(path.read_text(encoding="utf-8"))
    environment = content.pop("environment")
    title = path.stem.replace("_", " ").capitalize().replace("botorch", "BoTorch").replace("Botorch", "BoTorch")
    text = f"{title}\n{'-' * len(title)}\n\n"
    script = BENCHMARKS / f"{path.stem}.py"
    text += f"{claim(script)}\n\n"
    commit = environment.get("commit", "")[:10]
    versions = f"Python {environment['python']}, PyTorch {environment['torch']}, GPyTorch {environment['gpytorch']}"
    dated = f" of {environment['date']}" if "date" in environment else ""
    origin = f"{f'Commit ``{commit}``' if commit else 'Commit not recorded'}{dated}, {environment['processor']}"
    origin += f", {environment['threads']} {'thread' if environment['threads'] == 1 else 'threads'}, {versions}."
    text += f"{origin} ``benchmarks/{script.name}``, :download:`{path.name} <../benchmarks/results/{path.name}>`.\n\n"
    if (BENCHMARKS / "figures" / f"{path.stem}.png").exists():
        text += f".. image:: ../benchmarks/figures/{path.stem}.png\n   :alt: Figure of {title}: the claim above.\n\n"
    values = {key: value for key, value in content.items() if is_value(value)}
    tables = {key: list(records(value)) for key, value in content.items() if not is_value(value)}
    if values:
        text += ", ".join(f"{key.replace('_', ' ')} {_cell(value)}" for key, value in values.items()) + ".\n\n"
    return text + "".join(f"*{key.replace('_', ' ')}*\n\n{table(rows)}" for key, rows in tables.items() if rows)


def page() -> str:
    """The page of all benchmarks."""
    return INTRODUCTION + "".join(map(section, results()))


def generate(app: Sphinx) -> None:
    target = Path(app.srcdir) / "performance.rst"
    if not target.exists() or target.read_text(encoding="utf-8") != page():
        target.write_text(page(), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", generate)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
