"""Numbers by name, with their standard errors."""

import math

import pytest
from images import assert_image
from matplotlib.colors import to_hex

from rfgp.study import plots

VALUES = {"landmarks": 0.3, "exact": 0.28, "linear": 0.55, "trivial": 1.0}
ERRORS = {"landmarks": 0.02, "exact": 0.02, "linear": 0.04, "trivial": math.nan}


def test_estimates():
    ax = plots.estimates(VALUES, ERRORS, level=0.5, level_name="nominal", xlabel="RMSE")
    assert [text.get_text() for text in ax.get_yticklabels()] == list(VALUES)
    assert ax.get_ylim() == (3.5, -0.5)
    lines = [container.lines[0] for container in ax.containers]
    assert (
        len({line.get_marker() for line in lines}) == len({to_hex(line.get_color()) for line in lines}) == len(VALUES)
    )
    assert_image(ax, "estimates")


def test_numbers_that_are_not_finite_leave_a_gap():
    ax = plots.estimates({"a": math.inf, "b": 1.0})
    assert [math.isfinite(container.lines[0].get_xdata()[0]) for container in ax.containers] == [False, True]


@pytest.mark.parametrize(("values", "errors"), [({}, None), ({"a": 1.0}, {"b": 1.0}), ([1.0], None)])
def test_bad_estimates(values, errors):
    with pytest.raises(ValueError, match="expected"):
        plots.estimates(values, errors)
