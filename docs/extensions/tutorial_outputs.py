"""Outputs of the tutorials: those of a run in full, stored in ``tutorials/outputs`` for the site to show.

``python docs/extensions/tutorial_outputs.py`` runs the tutorials whose code has changed since, or those that are named.
"""

from __future__ import annotations

import base64
import io
import os
import re
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode, from_dict
from nbformat.v4 import new_code_cell, new_notebook

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tutorials"
PREPARATION = """%config InlineBackend.figure_formats = ["retina"]
import matplotlib.pyplot
matplotlib.pyplot.rcParams["figure.dpi"] = 80"""
COLORS = 128
TEMPORARY = re.compile(re.escape(tempfile.gettempdir()) + r"/tmp[a-z0-9_]{8}")


def scripts() -> list[Path]:
    """All tutorials, in the order of their numbers."""
    return sorted(SCRIPTS.glob("[0-9]*.py"))


def place(script: Path) -> Path:
    """The file with the outputs of a tutorial."""
    return SCRIPTS / "outputs" / f"{script.stem}.ipynb"


def code(script: Path) -> list[str]:
    """The code cells of a tutorial."""
    cells = jupytext.reads(script.read_text(encoding="utf-8"), fmt="py:percent").cells
    return [cell.source for cell in cells if cell.cell_type == "code"]


def stored(script: Path) -> NotebookNode | None:
    """The notebook of code cells and outputs of a tutorial, or None where its code is not that of the script."""
    path = place(script)
    notebook = nbformat.read(path, as_version=4) if path.exists() else None
    is_current = notebook is not None and [cell.source for cell in notebook.cells] == code(script)
    return notebook if is_current else None


def run(script: Path) -> NotebookNode:
    """A notebook of the code cells of a tutorial with all that they print and show, run in full in an empty folder."""
    from benchmarks.common import environment

    environ = {name: value for name, value in os.environ.items() if name not in {"RFGP_SHORT", "MPLBACKEND"}}
    environ["PYTHONPATH"] = str(ROOT)
    notebook = new_notebook(cells=[new_code_cell(source) for source in (PREPARATION, *code(script))])
    with tempfile.TemporaryDirectory() as folder:
        before = sum(os.times()[2:4])  # of processes that have ended
        NotebookClient(notebook, timeout=None, resources={"metadata": {"path": folder}}).execute(env=environ)
    made = environment()
    made["seconds"] = round(sum(os.times()[2:4]) - before)
    notebook.cells = notebook.cells[1:]
    notebook.metadata = from_dict({"run": {name: made[name] for name in ("seconds", "processor", "commit")}})
    return notebook


def shown(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Outputs as a page shows them: printed text in one piece, and figures of few colors; neither errors nor counts."""
    result: list[NotebookNode] = []
    for output in outputs:
        if output.get("name") == "stderr":
            continue
        if output.output_type == "stream":
            output.text = TEMPORARY.sub("folder", output.text)
        elif "image/png" in output.data:
            output.data = NotebookNode({"image/png": of_few_colors(output.data["image/png"])})
        if "execution_count" in output:
            output.execution_count = None
        if output.output_type == "stream" and result and result[-1].output_type == "stream":
            result[-1].text += output.text
        else:
            result.append(output)
    return result


def of_few_colors(png: str) -> str:
    """A figure with a palette, which takes a third of the bytes."""
    from PIL import Image

    buffer = io.BytesIO()
    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    image.quantize(COLORS, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


def store(script: Path, notebook: NotebookNode) -> None:
    """Write the notebook of a run without what differs from run to run."""
    notebook.nbformat_minor = 4  # of cells without names
    for cell in notebook.cells:
        del cell["id"]
        cell.execution_count, cell.metadata, cell.outputs = None, NotebookNode(), shown(cell.outputs)
    place(script).parent.mkdir(exist_ok=True)
    nbformat.write(notebook, place(script))


def main(names: list[str]) -> None:
    """Run the tutorials that begin with these names, or else those whose code has changed."""
    for path in place(SCRIPTS / "any").parent.glob("*.ipynb"):
        if path.stem not in {script.stem for script in scripts()}:
            path.unlink()
    for script in scripts():
        if script.name.startswith(tuple(names)) if names else stored(script) is None:
            print(script.name, end=" ", flush=True)
            notebook = run(script)
            store(script, notebook)
            print(f"{notebook.metadata['run']['seconds']} s", flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main(sys.argv[1:])
