"""Figures of calibration against stored images."""

from __future__ import annotations

import pytest
import torch
from images import assert_image, assert_readable_in_grey
from torch.distributions import Normal

from rfgp.diagnostics import calibration_curve, pit
from rfgp.study import plots

Y = torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def predicted(std):
    return Normal(torch.zeros_like(Y), torch.full_like(Y, std))


def test_calibration():
    curves = {name: calibration_curve(predicted(std), Y) for name, std in (("right", 1.0), ("too sure", 0.6))}
    ax = plots.calibration(curves)
    ax.legend(frameon=False)
    assert_image(ax, "calibration")
    assert_readable_in_grey(ax)


def test_pit_histogram():
    ax = plots.pit_histogram(pit(predicted(0.6), Y), label="too sure")
    ax.legend(frameon=False)
    assert_image(ax, "pit_histogram")


def test_bad_values():
    with pytest.raises(ValueError, match="from 0 to 1"):
        plots.pit_histogram([0.5, 1.5])
    with pytest.raises(ValueError, match="of one length for a"):
        plots.calibration({"a": 3})
