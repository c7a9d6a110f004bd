"""Calibration: what was observed against what was predicted, and histograms of probability integral transforms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._support import checks
from .base import COLORS, REFERENCE, array, axes, check_lengths, check_words, finished, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def calibration(
    curves: Mapping[str, Any],
    *,
    xlabel: str = "nominal coverage of intervals",
    ylabel: str = "share of targets inside",
    ax: Axes | None = None,
) -> Axes:
    """Observed shares against predicted ones, with two standard errors, beside the diagonal of a calibrated model.

    :param curves: by the name of a model, a :class:`rfgp.diagnostics.CalibrationCurve`, or any object with its
        ``predicted``, ``observed`` and ``error``, (K,) each.
    :param ax: the axes to draw in; default: new ones.
    :raises ValueError: where the arrays of a curve have different lengths.

    >>> import torch
    >>> from rfgp.diagnostics import calibration_curve
    >>> predictive = torch.distributions.Normal(torch.zeros(100), torch.ones(100))
    >>> calibration({"model": calibration_curve(predictive, torch.randn(100))}).get_xlabel()
    'nominal coverage of intervals'
    """
    check_words(xlabel=xlabel, ylabel=ylabel)
    ax = axes(ax)
    checks.instance("curves", curves, Mapping, "curves by name", "pass {name: calibration_curve(...)}")
    ax.plot([0.0, 1.0], [0.0, 1.0], label="calibrated", **(REFERENCE | {"linewidth": 1.0}))
    for i, (name, curve) in enumerate(curves.items()):
        x, y, error = (
            array(getattr(curve, key, None), f"{key} of {name}") for key in ("predicted", "observed", "error")
        )
        check_lengths(name, x, y, error)
        ax.errorbar(x, y, yerr=2.0 * error, label=name, **style(i), linewidth=1.2, markersize=4.0, elinewidth=0.8)
    return finished(ax, xlabel=xlabel, ylabel=ylabel, xlim=(0.0, 1.0), ylim=(0.0, 1.0), aspect="equal")


def pit_histogram(values: Any, *, num_bins: int = 20, label: str | None = None, ax: Axes | None = None) -> Axes:
    """The histogram of probability integral transforms, with the band of a calibrated model (two standard errors).

    :param values: from 0 to 1, (N,), such as :func:`rfgp.diagnostics.pit` returns.
    :param num_bins: the number of bins.
    :param ax: the axes to draw in; default: new ones.
    :raises ValueError: for values out of range.

    >>> import torch
    >>> pit_histogram(torch.rand(200)).get_ylabel()
    'density'
    """
    check_words(label=label)
    ax, bins = axes(ax), checks.positive_integer("num_bins", num_bins)
    places = array(values, "values").ravel()
    if not len(places) or not (places.min() >= 0.0 and places.max() <= 1.0):
        raise ValueError("expected values from 0 to 1, got others or none; pass rfgp.diagnostics.pit(predictive, y)")
    half = 2.0 * np.sqrt((bins - 1.0) / len(places))
    ax.axhspan(max(1.0 - half, 0.0), 1.0 + half, color="#CCCCCC", label="calibrated", zorder=0)
    ax.hist(
        places, bins=bins, range=(0.0, 1.0), density=True, histtype="step", color=COLORS[0], linewidth=1.4, label=label
    )
    ax.axhline(1.0, **(REFERENCE | {"linewidth": 1.0}))
    return finished(ax, xlabel="probability integral transform of the target", ylabel="density", xlim=(0.0, 1.0))
