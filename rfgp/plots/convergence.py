"""Bounds and true errors of an iterative solution against its iterations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _checks
from .base import COLORS, EXACT, LINES, MARKERS, array, axes, check_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def convergence(
    bounds: Mapping[str, Any],
    errors: Mapping[str, Any] | None = None,
    *,
    tolerance: float | None = None,
    xlabel: str = "passes over the kernel matrix",
    ylabel: str = "error of the mean",
    ax: Axes | None = None,
) -> Axes:
    """Certified bounds by name as lines, the true errors of the same name as markers of the same color below them.

    Values that are not finite or not positive leave a gap, since the ordinate is logarithmic.

    :param bounds: the bound after every iteration, from none on, by name, (K,).
    :param errors: true errors of some of these names, of the same lengths; default: none are known.
    :param tolerance: where the iterations were to stop; default: no line.
    :param xlabel: the label of the abscissa.
    :param ylabel: the label of the ordinate, with its unit.
    :param ax: the axes to draw in; default: new ones.
    :returns: the axes.
    :raises ValueError: where there are no bounds of the name of an error, or lengths differ.

    >>> ax = convergence({"512 landmarks": [1.0, 0.1, 0.01]}, tolerance=0.05)
    """
    ax = axes(ax)
    check_words(xlabel=xlabel, ylabel=ylabel)
    _checks.instance("bounds", bounds, Mapping, "bounds by name", "pass {name: bounds}")
    known = {} if errors is None else errors
    _checks.instance("errors", known, Mapping, "errors by name", "pass {name: errors}")
    if missing := set(known) - set(bounds):
        raise ValueError(f"expected bounds for every name of errors, got none for {sorted(missing)}; add them")
    for i, name in enumerate(bounds):
        color, line = COLORS[i % len(COLORS)], LINES[i % len(LINES)]
        above = _positive(bounds[name], f"bounds of {name}")
        label = f"{name}: bound" if known else name
        ax.plot(above, label=label, color=color, linestyle=line, linewidth=1.4)
        if name in known:
            below = _positive(known[name], f"errors of {name}")
            if below.shape != above.shape:
                raise ValueError(
                    f"expected {len(above)} errors of {name}, one for each of its bounds, got {len(below)}; correct it"
                )
            marks: dict[str, Any] = {
                "marker": MARKERS[i % len(MARKERS)],
                "markersize": 3.5,
                "linestyle": "none",
                "color": color,
            }
            ax.plot(below, label=f"{name}: true error", **marks)
    if tolerance is not None:
        height = _checks.positive("tolerance", tolerance)
        ax.axhline(height, label="tolerance", color=EXACT, linestyle="--", linewidth=1.1, zorder=1)
    ax.set_yscale("log")
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.grid(True, which="major", color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _positive(values: Any, name: str) -> np.ndarray:
    known = array(values, name)
    if known.ndim != 1:
        raise ValueError(f"expected {name} of shape (K,), got {known.shape}; pass one per iteration")
    return np.where(np.isfinite(known) & (known > 0), known, np.nan)
