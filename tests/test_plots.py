"""Figures: what is drawn, checked on the Axes without rendering."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from rfgp import plots
from rfgp.plots import Curve

pytest.importorskip("matplotlib")
WIDTHS = [64, 128, 256]


def curves(count=2):
    return {f"method {i}": Curve(WIDTHS, [3.0 + i, 2.0, 0.5], [0.1, 0.2, np.nan]) for i in range(count)}


def lines(ax):
    return [container.lines[0] for container in ax.containers]


def test_one_line_and_colour_per_method():
    ax = plots.comparison(curves(10), xlabel="number of features", ylabel="KL")
    drawn = lines(ax)
    assert ax.get_legend_handles_labels()[1] == [f"method {i}" for i in range(10)]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_xscale(), ax.get_yscale()) == (
        "number of features",
        "KL",
        "log",
        "log",
    )
    assert len({(line.get_color(), line.get_linestyle()) for line in drawn}) == 10
    assert [line.get_color() for line in drawn[:8]] == list(plots.COLOURS)
    assert drawn[1].get_ydata().tolist() == [4.0, 2.0, 0.5]


def test_error_bars_are_the_standard_errors():
    ax = plots.comparison(curves(1))
    segments = np.array(ax.containers[0].lines[2][0].get_segments())
    assert np.allclose(np.diff(segments[:, :, 1], axis=1)[:, 0], [0.2, 0.4, 0.0])
    assert lines(plots.comparison({"a": Curve([1.0, 2.0], [1.0, 2.0])}))[0].get_ydata().tolist() == [1.0, 2.0]


def test_values_without_a_place_leave_a_gap():
    ax = plots.comparison({"a": Curve([1.0, 2.0, 3.0], [np.inf, 0.0, 1.0])})
    assert np.isnan(lines(ax)[0].get_ydata()).tolist() == [True, True, False]
    ax = plots.comparison({"a": Curve([1.0, 2.0, 3.0], [np.nan, 0.0, -1.0])}, log_y=False)
    assert np.isnan(lines(ax)[0].get_ydata()).tolist() == [True, False, False]
    assert ax.get_yscale() == "linear"


def test_the_exact_model_is_dashed():
    ax = plots.comparison(curves(), exact=0.4, exact_x=100.0)
    dashed = [line for line in ax.lines if line.get_label() == "exact"]
    assert all(line.get_linestyle() == "--" for line in dashed)
    across, up = dashed
    assert list(across.get_ydata()) == [0.4, 0.4] and list(up.get_xdata()) == [100.0, 100.0]
    assert not [line for line in plots.comparison(curves()).lines if line.get_label() == "exact"]


def test_every_number_of_features_has_a_tick():
    ax = plots.comparison(curves(), log_x=2)
    assert ax.get_xticks().tolist() == WIDTHS
    assert [ax.xaxis.get_major_formatter()(value, 0) for value in WIDTHS] == ["64", "128", "256"]
    assert plots.comparison(curves(), log_x=None).get_xscale() == "linear"


def test_one_legend_for_all_panels(tmp_path):
    figure, axes = plots.figure(2, 3)
    assert axes.shape == (2, 3)
    for ax in axes.flat:
        plots.comparison(curves(), exact=1.0, exact_x=100.0, ax=ax)
    plots.legend(figure, list(axes.flat))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["exact", "method 0", "method 1"]
    assert figure.get_layout_engine() is not None
    figure.savefig(tmp_path / "figure.png", dpi=30)
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_bad_arrays():
    with pytest.raises(ValueError, match=r"expected arrays of one length for a, got \(2,\), \(1,\) and \(1,\)"):
        plots.comparison({"a": Curve([1.0, 2.0], [1.0])})


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"expected matplotlib for figures, got none; pip install 'rfgp\[plots\]'"):
        plots.figure(1, 1)
