"""Predictions with intervals, and coverage by level."""

import numpy as np
import pytest
from images import assert_image, assert_readable_in_grey

from rfgp.study import plots


def rows(count=60):
    generator = np.random.default_rng(0)
    target = generator.normal(size=count)
    mean = target + 0.3 * generator.normal(size=count)
    return target, mean, mean - 0.5, mean + 0.5


def test_predictions_and_those_outside():
    target, mean, lower, upper = rows()
    ax = plots.predictions(target, mean, lower, upper, unit="m/s", name="wind")
    inside = int(((lower <= target) & (target <= upper)).sum())
    labels = ax.get_legend_handles_labels()[1]
    assert f"inside its interval ({inside})" in labels and f"outside its interval ({60 - inside})" in labels
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("wind measured [m/s]", "wind predicted [m/s]")
    assert_image(ax, "intervals_predictions")
    with pytest.raises(ValueError, match="one length"):
        plots.predictions(target, mean, lower, upper[1:])


def test_coverage_by_level():
    levels = [0.5, 0.7, 0.9]
    shares = {"model": [0.3, 0.45, 0.6], "jackknife+": [0.51, 0.7, 0.9], "split conformal": [0.53, 0.72, 0.91]}
    errors = {name: [0.02, 0.02, 0.01] for name in shares}
    ax = plots.coverage_by_level(levels, shares, errors=errors)
    assert ax.get_legend_handles_labels()[1] == ["asked for", *shares]
    assert_readable_in_grey(ax)
    assert_image(ax, "intervals_coverage")
    with pytest.raises(ValueError, match="per level"):
        plots.coverage_by_level(levels, {"model": [0.5]})
