"""The figure of bounds and true errors against iterations."""

from __future__ import annotations

import numpy as np
import pytest
from images import assert_image, assert_readable_in_grey

from rfgp.study import plots


def curves():
    steps = np.arange(12)
    bounds = {"256 landmarks": 2.0 * 0.6**steps, "1,024 landmarks": 1.0 * 0.3**steps}
    return bounds, {name: values * (0.05 + 0.02 * np.sin(steps)) for name, values in bounds.items()}


def test_bounds_are_lines_and_errors_markers():
    ax = plots.figure(1, 1, width=3.6, height=2.5)[1][0, 0]
    plots.convergence(*curves(), tolerance=1e-3, ylabel="error (sd of the targets)", ax=ax)
    ax.legend(fontsize=6, loc="lower left")
    assert ax.get_yscale() == "log"
    assert [line.get_linestyle() for line in ax.lines][1::2][:2] == ["None", "None"]
    assert_readable_in_grey(ax)
    assert_image(ax, "convergence")


def test_bounds_alone_have_their_names():
    ax = plots.convergence({"a": [1.0, 0.0, np.inf, 0.1]})
    assert [line.get_label() for line in ax.lines] == ["a"]
    assert np.isnan(ax.lines[0].get_ydata()).tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    ("bounds", "errors", "match"),
    [
        (None, None, "bounds"),
        ({"a": [1.0]}, {"b": [1.0]}, "every name"),
        ({"a": [1.0]}, {"a": [1.0, 2.0]}, "1 errors of a"),
        ({"a": [[1.0]]}, None, "shape"),
    ],
)
def test_bad_arrays(bounds, errors, match):
    with pytest.raises(ValueError, match=match):
        plots.convergence(bounds, errors)
