"""The tutorials: percent scripts of the folder ``tutorials``, run at the build and shown with their figures."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import jupytext
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

if TYPE_CHECKING:
    from sphinx.application import Sphinx

SCRIPTS = Path(__file__).parents[2] / "tutorials"
SHORT = os.environ.get("RFGP_SHORT") == "1"
LENGTH = "in its short mode: figures and numbers are those of tiny sizes" if SHORT else "in full"
PREPARATION = f"""
%config InlineBackend.figure_formats = ["retina"]
import os
os.environ["RFGP_SHORT"] = "{int(SHORT)}"
"""


def scripts() -> list[Path]:
    """All tutorials, in the order of their numbers."""
    return sorted(SCRIPTS.glob("[0-9]*.py"))


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
    """A notebook of a script, with figures for sharp screens and a line that says how it was run."""
    notebook = jupytext.reads(text, fmt="py:percent")
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    hidden = new_code_cell(PREPARATION, metadata={"tags": ["remove-cell"]})
    first, _, rest = notebook.cells[0].source.partition("\n")
    note = f"{first}\n\n*Run {LENGTH}, with every figure and number that the code below gives.*\n{rest}"
    notebook.cells = [hidden, new_markdown_cell(note), *notebook.cells[1:]]
    return notebook


def index() -> str:
    """The page that lists the tutorials."""
    text = "Tutorials\n=========\n\nNumbered scripts to read and run: ``python tutorials/01_drop_in_regression.py``. "
    text += "Every page here is one of them, with its figures.\n\n.. list-table::\n   :widths: auto\n\n"
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
        if not copied.exists() or copied.read_bytes() != path.read_bytes():
            shutil.copyfile(path, copied)
    (folder / "index.rst").write_text(index(), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", generate)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
