"""The tutorials: percent scripts of the folder ``tutorials``, shown with the outputs that are stored beside them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import jupytext
import tutorial_outputs
from nbformat import NotebookNode
from sphinx.util.logging import getLogger
from tutorial_outputs import scripts

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def title(script: Path) -> str:
    """The heading of a tutorial."""
    return next(line[4:].strip() for line in script.read_text(encoding="utf-8").splitlines() if line.startswith("# # "))


def question(script: Path) -> str:
    """What a tutorial asks: the first words in bold, or else its first paragraph."""
    text = script.read_text(encoding="utf-8").partition("# # ")[2].partition("# %%")[0]
    prose = " ".join(line.lstrip("# ") for line in text.splitlines()[1:])
    bold = re.search(r"\*\*(.+?)\*\*", prose)
    return bold[1] if bold else prose.strip().partition(". ")[0]


def read(text: str) -> NotebookNode:
    """A notebook of a script with the outputs of its last run, and a line that says what that was."""
    notebook = jupytext.reads(text, fmt="py:percent")
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    script = next(path for path in scripts() if path.read_text(encoding="utf-8") == text)
    made = tutorial_outputs.stored(script)
    if made is None:
        getLogger(__name__).warning("the code of %s has changed since it was run: use `make tutorials`", script.name)
        return notebook
    for cell, ran in zip([cell for cell in notebook.cells if cell.cell_type == "code"], made.cells, strict=True):
        cell.outputs = ran.outputs
    first, _, rest = notebook.cells[0].source.partition("\n")
    notebook.cells[0].source = f"{first}\n\n*{origin(made)}*\n{rest}"
    return notebook


def origin(made: NotebookNode) -> str:
    """What run the outputs of a tutorial are from."""
    run = made.metadata["run"]
    where = f"on one core of {run['processor']}, at commit {run['commit'][:8]}"
    return f"Outputs of a full run: {run['seconds']} s {where}."


def index() -> str:
    """The page that lists the tutorials."""
    text = "Tutorials\n=========\n\nNumbered scripts to read and run: ``python tutorials/01_drop_in_regression.py``. "
    text += "Every page here is one of them, with what it prints and draws.\n\n.. list-table::\n   :widths: auto\n\n"
    text += "".join(f"   * - :doc:`{path.stem}`\n     - {question(path)}\n" for path in scripts())
    return text + "\n.. toctree::\n   :hidden:\n\n" + "".join(f"   {path.stem}\n" for path in scripts())


def generate(app: Sphinx) -> None:
    """Copy the scripts to where Sphinx looks for pages."""
    folder = Path(app.srcdir) / "tutorials"
    folder.mkdir(exist_ok=True)
    wanted = {path.name for path in scripts()} | {"index.rst"}
    for path in folder.iterdir():
        if path.name not in wanted:
            path.unlink()
    for path in scripts():
        copied = folder / path.name
        made = [file.stat().st_mtime for file in (path, tutorial_outputs.place(path)) if file.exists()]
        if not copied.exists() or copied.stat().st_mtime < max(made):
            shutil.copyfile(path, copied)
    (folder / "index.rst").write_text(index(), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", generate)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
