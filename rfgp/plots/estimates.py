"""Numbers by name, with their standard errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _checks
from .base import COLORS, EXACT, MARKERS, array, axes, check_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def estimates(
    values: Mapping[str, Any],
    errors: Mapping[str, Any] | None = None,
    *,
    level: float | None = None,
    level_name: str = "nominal",
    xlabel: str = "",
    ax: Axes | None = None,
) -> Axes:
    """A point per name, the first on top, with a bar of one standard error to both sides.

    :param values: numbers by name; those that are not finite leave a gap.
    :param errors: their standard errors by name, NaN where there are none; default: no bars.
    :param level: where to draw a vertical line; default: none.
    :param level_name: the name of the line.
    :param xlabel: the label of the abscissa.
    :param ax: the axes to draw in; default: new ones.
    :returns: the axes.
    :raises ValueError: where there are no values, or errors have other names.

    >>> ax = estimates({"exact": 0.28, "linear": 0.55}, {"exact": 0.02, "linear": 0.04}, xlabel="RMSE")
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['exact', 'linear']
    """
    _checks.instance("values", values, Mapping, "numbers by name", 'such as {"exact": 1.0}')
    check_words(level_name=level_name, xlabel=xlabel)
    names = list(values)
    errors = dict.fromkeys(names, np.nan) if errors is None else errors
    _checks.instance("errors", errors, Mapping, "standard errors by name", 'such as {"exact": 0.1}')
    if not names or set(errors) != set(names):
        raise ValueError(f"expected values and errors of the same names, got {names} and {list(errors)}; correct them")
    ax = axes(ax)
    x = array([values[name] for name in names], "values")
    spread = np.nan_to_num(array([errors[name] for name in names], "errors"), posinf=0.0)
    for i, name in enumerate(names):
        ax.errorbar(
            x[i] if np.isfinite(x[i]) else np.nan,
            i,
            xerr=spread[i],
            color=COLORS[i % len(COLORS)],
            marker=MARKERS[i % len(MARKERS)],
            linestyle="",
            markersize=6,
            elinewidth=1.4,
            capsize=3.0,
            label=name,
        )
    if level is not None:
        ax.axvline(_checks.number(level), color=EXACT, linestyle="--", linewidth=1.1, zorder=1, label=level_name)
    ax.set(xlabel=xlabel, ylim=(len(names) - 0.5, -0.5))
    ax.set_yticks(range(len(names)), names)
    ax.grid(True, axis="x", color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return ax
