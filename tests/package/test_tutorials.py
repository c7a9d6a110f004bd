"""Every tutorial runs from start to end, in its short mode."""

import runpy
import sys
from pathlib import Path

import gpytorch
import matplotlib.pyplot as plt
import pytest
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


def test_there_are_tutorials():
    assert SCRIPTS
