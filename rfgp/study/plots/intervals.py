"""Predictions with their intervals against what was measured, and the coverage of intervals by level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._support import checks
from .base import COLORS, REFERENCE, array, axes, check_words, finished, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def predictions(
    target: Any, mean: Any, lower: Any, upper: Any, *, unit: str = "", name: str = "target", ax: Axes | None = None
) -> Axes:
    """Predictions with their intervals against the targets; rows outside of their interval have another marker.

    :param target: what was measured, (n,).
    :param mean: predictions, (n,), such as those of :meth:`rfgp.WeightSpaceGP.leave_one_out`.
    :param lower: the lower ends of intervals, (n,).
    :param upper: the upper ends, (n,).
    :param unit: the unit of all of them.
    :param name: what is predicted.
    :param ax: the axes to draw in; default: new ones.
    :raises ValueError: for arrays of different lengths.

    >>> ax = predictions([1.0, 2.0], [1.1, 2.4], [0.8, 2.1], [1.4, 2.7], unit="m")
    """
    check_words(unit=unit, name=name)
    values = [array(v, n) for v, n in ((target, "target"), (mean, "mean"), (lower, "lower"), (upper, "upper"))]
    if len({value.shape for value in values}) > 1 or values[0].ndim != 1:
        raise ValueError(f"expected arrays of one length, got {[value.shape for value in values]}; correct them")
    y, center, low, high = values
    ax = axes(ax)
    is_inside = (low <= y) & (y <= high)
    for inside, color, marker, label in ((True, COLORS[0], "o", "inside"), (False, COLORS[1], "s", "outside")):
        rows = is_inside if inside else ~is_inside & np.isfinite(y + center)
        ends = np.stack([center[rows] - low[rows], high[rows] - center[rows]]).clip(0.0)
        ax.errorbar(
            y[rows],
            center[rows],
            yerr=ends,
            label=f"{label} its interval ({int(rows.sum())})",
            color=color,
            marker=marker,
            markersize=3.5,
            linestyle="none",
            elinewidth=0.6,
            alpha=0.55 if inside else 0.95,
            zorder=2 if inside else 3,
        )
    limits = np.nanmin(y), np.nanmax(y)
    ax.plot(limits, limits, label="as measured", **(REFERENCE | {"zorder": 4}))
    suffix = f" [{unit}]" if unit else ""
    return finished(ax, has_legend=True, xlabel=f"{name} measured{suffix}", ylabel=f"{name} predicted{suffix}")


def coverage_by_level(
    levels: Any, shares: Mapping[str, Any], *, errors: Mapping[str, Any] | None = None, ax: Axes | None = None
) -> Axes:
    """The shares of targets inside of intervals, for every method, by the level that was asked for.

    :param levels: the levels, (k,).
    :param shares: the shares of every method, (k,), by name.
    :param errors: their standard errors, (k,), by name; default: none are drawn.
    :param ax: the axes to draw in; default: new ones.
    :raises ValueError: for arrays of different lengths.

    >>> ax = coverage_by_level([0.5, 0.9], {"landmarks": [0.52, 0.91]})
    """
    asked = array(levels, "levels")
    checks.instance("shares", shares, Mapping, "shares by name", "pass {name: shares}")
    if errors is not None:
        checks.instance("errors", errors, Mapping, "standard errors by name", "pass {name: errors}")
        if not set(shares) <= set(errors):
            raise ValueError(f"expected errors of {list(shares)}, got those of {list(errors)}; pass one array for each")
    ax = axes(ax)
    ax.plot([0.0, 1.0], [0.0, 1.0], label="asked for", **REFERENCE)
    for place, (name, values) in enumerate(shares.items()):
        share = array(values, name)
        error = np.zeros(share.shape) if errors is None else array(errors[name], f"errors of {name}")
        if not share.shape == asked.shape == error.shape or asked.ndim != 1:
            raise ValueError(f"expected a share of {name} per level, got {share.shape} for {asked.shape}; correct it")
        bars = None if errors is None else error
        ax.errorbar(asked, share, yerr=bars, label=name, **style(place), linewidth=1.4, markersize=4.5)
    words = {"xlabel": "level asked for", "ylabel": "share of targets inside"}
    return finished(ax, has_legend=True, xlim=(0.0, 1.0), ylim=(0.0, 1.0), **words)
