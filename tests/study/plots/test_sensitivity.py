"""Bars of Sobol' indices and main effects."""

from __future__ import annotations

import numpy as np
import pytest
from images import assert_image, assert_readable_in_grey

from rfgp.study import plots

NAMES = ["length", "width", "load"]
FIRST, TOTAL = np.array([0.31, 0.44, 0.0]), np.array([0.56, 0.44, 0.24])


def effects():
    grid = np.linspace(0.0, 1.0, 13)[:, None] * np.array([1.0, 20.0, 3.0])
    return grid, np.stack([np.sin(5.0 * grid[:, 0]), np.cos(0.2 * grid[:, 1]), 0.2 * grid[:, 2]], axis=-1)


def test_bars():
    ax = plots.sobol_bars(NAMES, FIRST, TOTAL, (FIRST - 0.03, FIRST + 0.03), (TOTAL - 0.04, TOTAL + 0.05))
    assert [bar.get_height() for bar in ax.containers[1]] == TOTAL.tolist()
    assert [label.get_text() for label in ax.get_xticklabels()] == NAMES
    assert len({bars[0].get_hatch() for bars in ax.containers}) == 2
    assert_image(ax, "sobol_bars")


def test_shapley_bars():
    ax = plots.shapley_bars(NAMES, TOTAL, (TOTAL - 0.04, TOTAL + 0.05))
    (bars,) = ax.containers
    assert [bar.get_height() for bar in bars] == TOTAL.tolist()
    assert [bar.get_center()[0] for bar in bars] == [0.0, 1.0, 2.0]


def test_main_effects():
    grid, effect = (values[:, :2] for values in effects())
    ax = plots.main_effects(NAMES[:2], grid, effect, (effect - 0.1, effect + 0.1), ylabel="strain, mm")
    ax.grid(False)  # a smaller file
    assert [line.get_label() for line in ax.get_lines()] == NAMES[:2]
    assert_readable_in_grey(ax)
    assert_image(ax, "main_effects")


def test_one_input_has_its_values():
    grid, effect = effects()
    ax = plots.main_effects(["width, mm"], grid[:, 1:2], effect[:, 1:2])
    assert ax.get_lines()[0].get_xdata()[-1] == 20.0
    many = plots.main_effects([f"x{k}" for k in range(8)], np.tile(grid[:, :1], 8), np.tile(effect[:, :1], 8))
    assert_readable_in_grey(many)


@pytest.mark.parametrize(
    "call",
    [
        lambda: plots.sobol_bars(NAMES, FIRST[:2], TOTAL),
        lambda: plots.sobol_bars(NAMES, FIRST, TOTAL, (FIRST[:2], FIRST)),
        lambda: plots.shapley_bars(NAMES, FIRST[:2]),
        lambda: plots.main_effects(NAMES, effects()[0][:, :2], effects()[1]),
        lambda: plots.main_effects(NAMES, effects()[0], effects()[1][:5]),
        lambda: plots.main_effects(NAMES, *effects(), (effects()[1], FIRST)),
        lambda: plots.main_effects(["x"] * 25, np.ones((2, 25)), np.ones((2, 25))),
    ],
)
def test_bad_arrays_are_refused(call):
    with pytest.raises(ValueError, match=r"expected .+, got .+; \S+ \S.*"):
        call()
