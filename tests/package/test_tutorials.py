"""Every tutorial runs from start to end, in its short mode, and has stored outputs of a run in full."""

import re
import runpy
import sys
from pathlib import Path

import gpytorch
import matplotlib.pyplot as plt
import pytest
import tutorial_outputs
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "tutorials").glob("[0-9]*.py"))


def draw(figure, *_, **__):
    """In place of saving a figure: everything in it is laid out, without its pixels."""
    figure.set_layout_engine("none")
    figure.draw_without_rendering()


@pytest.fixture
def short(tmp_path, monkeypatch):
    """A directory of its own, figures that nobody sees, and settings and modules that stay in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RFGP_SHORT", "1")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr(sys, "argv", ["tutorial"])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(Figure, "savefig", draw)
    plt.switch_backend("Agg")
    with gpytorch.settings.fast_computations():
        yield
    plt.close("all")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_tutorial_runs(script, short, small_defaults):
    runpy.run_path(str(script), run_name="__main__")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_stored_outputs_are_those_of_the_code(script):
    notebook = tutorial_outputs.stored(script)
    assert notebook is not None, f"the code has changed since it was run: make tutorials ONLY={script.name[:2]}"
    outputs = [output for cell in notebook.cells for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    for output in outputs:
        printed = output.text if output.output_type == "stream" else output.data.get("text/plain", "")
        assert re.search(r"/tmp|/home|/root| at 0x|it/s\]|^Text\(|^<", printed) is None, printed
        assert output.output_type != "error" and output.get("name") != "stderr"


def test_only_new_code_makes_outputs_stale(tmp_path, monkeypatch):
    monkeypatch.setattr(tutorial_outputs, "SCRIPTS", tmp_path)
    script = tmp_path / "01_one.py"
    script.write_text("# %% [markdown]\n# # One\n\n# %%\n1 + 1\n")
    assert tutorial_outputs.stored(script) is None
    notebook = tutorial_outputs.new_notebook(cells=[tutorial_outputs.new_code_cell("1 + 1")])
    tutorial_outputs.store(script, notebook)
    script.write_text(script.read_text().replace("One", "Two"))
    assert tutorial_outputs.stored(script) is not None
    script.write_text(script.read_text().replace("1 + 1", "1 + 2"))
    assert tutorial_outputs.stored(script) is None


def test_stored_outputs_are_small():
    assert SCRIPTS and {path.stem for path in tutorial_outputs.place(SCRIPTS[0]).parent.iterdir()} == {
        script.stem for script in SCRIPTS
    }
    assert sum(tutorial_outputs.place(script).stat().st_size for script in SCRIPTS) < 5_000_000
