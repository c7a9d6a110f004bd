"""Measurements of methods: curves against features or time, single numbers, and errors by iterations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._support import checks
from .base import COLORS, LINES, MARKERS, REFERENCE, array, axes, check_lengths, check_words, finished, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_APART = 0.02  # octaves between neighboring methods
_LEVELS = (":", "-.", (0, (8, 3)))
_STEPS = {
    4.0: (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0),
    12.0: (1.0, 1.5, 2.0, 3.0, 5.0, 7.0),
    100.0: (1.0, 2.0, 5.0),
}


@dataclass(frozen=True)
class Curve:
    """The measurements of one method.

    :param x: abscissae, (K,).
    :param y: means, (K,).
    :param error: standard errors of the means, (K,), NaN where there are none; default: no error bars.

    >>> Curve([64, 128], [0.4, 0.3], [0.01, 0.02]).x
    [64, 128]
    """

    x: Any
    y: Any
    error: Any = None


def comparison(
    curves: Mapping[str, Curve],
    *,
    exact: float | None = None,
    exact_x: float | None = None,
    exact_name: str = "exact",
    levels: Mapping[str, float] | None = None,
    xlabel: str = "",
    ylabel: str = "",
    log_x: float | None = 10,
    log_y: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """One line per method, with its standard errors, and dashed lines for the exact model.

    Means that are not finite, or not positive on a logarithmic axis, leave a gap.

    :param curves: the measurements of every method by its name.
    :param exact: the ordinate of the exact model.
    :param exact_x: the abscissa of the exact model, such as its time.
    :param levels: ordinates of further models by name, for thin horizontal lines; default: none.
    :param log_x: the base of a logarithmic abscissa, None for a linear one; base 2 labels every abscissa.
    :param log_y: whether the ordinate is logarithmic.
    :param ax: the axes to draw in; default: new ones.
    :raises ValueError: where the arrays of a method have different lengths.

    >>> curves = {"fourier": Curve([64, 128], [0.4, 0.3], [0.01, 0.02])}
    >>> ax = comparison(curves, exact=0.25, xlabel="features", ylabel="error")
    >>> ax.get_xlabel()
    'features'
    """
    check_words(exact_name=exact_name, xlabel=xlabel, ylabel=ylabel)
    ax, log_y = axes(ax), checks.flag("log_y", log_y)
    levels = {} if levels is None else levels
    checks.instance("levels", levels, Mapping, "ordinates by name", "pass {name: ordinate}")
    if log_x is not None:
        log_x = _base(log_x)
    checks.instance("curves", curves, Mapping, "curves by name", "pass {name: Curve(x, y)}")
    for name, value in (("exact", exact), ("exact_x", exact_x)):
        if value is not None and not math.isfinite(checks.number(value)):
            raise ValueError(f"expected a finite number for {name}, got {value!r}; or pass None")
    for i, (name, curve) in enumerate(curves.items()):
        checks.instance(f"{name}", curve, Curve, "a Curve", "pass Curve(x, y)")
        x, y = array(curve.x, f"x of {name}"), array(curve.y, f"y of {name}")
        error = np.full(y.shape, np.nan) if curve.error is None else array(curve.error, f"error of {name}")
        check_lengths(name, x, y, error)
        drawn = np.isfinite(x) & np.isfinite(y) & ((y > 0) | (not log_y))
        ax.errorbar(
            x * 2.0 ** (_APART * (i - (len(curves) - 1) / 2)) if log_x == 2 else x,
            np.where(drawn, y, np.nan),
            yerr=np.where(np.isfinite(error) & drawn, error, 0.0),
            label=name,
            **style(i),
            linewidth=1.4,
            markersize=4.5,
            markeredgecolor="white",
            markeredgewidth=0.6,
            elinewidth=1.0,
            capsize=2.0,
        )
    if exact is not None:
        ax.axhline(exact, label=exact_name, **REFERENCE)
    if exact_x is not None:
        ax.axvline(exact_x, label=exact_name, **REFERENCE)
    for i, (name, level) in enumerate(levels.items()):
        line = _LEVELS[i % len(_LEVELS)]
        ax.axhline(checks.number(level), label=name, color="#777777", linewidth=1.0, linestyle=line, zorder=1)
    _scale(ax, curves, log_x, log_y)
    return finished(ax, "both", xlabel=xlabel, ylabel=ylabel)


def _base(log_x: Any) -> float:
    base = checks.number(log_x)
    if not 1.0 < base < np.inf:
        raise ValueError(f"expected a base above 1 for log_x, got {log_x!r}; None is for a linear abscissa")
    return base


def _scale(ax: Axes, curves: Mapping[str, Curve], log_x: float | None, log_y: bool) -> None:
    """Logarithmic axes with plain labels: every abscissa for base 2, and more than powers of ten on short axes."""
    from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

    if log_x is not None:
        ax.set_xscale("log", base=log_x)
    if log_y:
        ax.set_yscale("log")
    for axis, is_log, limits in ((ax.xaxis, log_x is not None, ax.get_xlim()), (ax.yaxis, log_y, ax.get_ylim())):
        if axis is ax.xaxis and log_x == 2:
            ticks = sorted({float(v) for curve in curves.values() for v in np.asarray(curve.x, dtype=float)})
            axis.set_major_locator(FixedLocator(ticks))
        elif is_log and limits[1] < max(_STEPS) * limits[0]:
            steps = next(steps for largest, steps in _STEPS.items() if limits[1] < largest * limits[0])
            axis.set_major_locator(LogLocator(subs=steps))
        else:
            continue
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(lambda value, _: f"{value:g}")


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
    :param ax: the axes to draw in; default: new ones.
    :raises ValueError: where there are no values, or errors have other names.

    >>> ax = estimates({"exact": 0.28, "linear": 0.55}, {"exact": 0.02, "linear": 0.04}, xlabel="RMSE")
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['exact', 'linear']
    """
    checks.instance("values", values, Mapping, "numbers by name", 'such as {"exact": 1.0}')
    check_words(level_name=level_name, xlabel=xlabel)
    names = list(values)
    errors = dict.fromkeys(names, np.nan) if errors is None else errors
    checks.instance("errors", errors, Mapping, "standard errors by name", 'such as {"exact": 0.1}')
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
            label=name,
            **(style(i) | {"linestyle": ""}),
            markersize=6,
            elinewidth=1.4,
            capsize=3.0,
        )
    if level is not None:
        ax.axvline(checks.number(level), label=level_name, **REFERENCE)
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    return finished(ax, "x", xlabel=xlabel, ylim=(len(names) - 0.5, -0.5))


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

    :param bounds: the bound after every iteration by name, (K,); one that is not positive leaves a gap.
    :param errors: true errors of some of these names, of the same lengths; default: none are known.
    :param tolerance: where the iterations were to stop; default: no line.
    :param ax: the axes to draw in; default: new ones.
    :raises ValueError: where there are no bounds of the name of an error, or lengths differ.

    >>> ax = convergence({"512 landmarks": [1.0, 0.1, 0.01]}, tolerance=0.05)
    """
    ax = axes(ax)
    check_words(xlabel=xlabel, ylabel=ylabel)
    checks.instance("bounds", bounds, Mapping, "bounds by name", "pass {name: bounds}")
    true_errors = {} if errors is None else errors
    checks.instance("errors", true_errors, Mapping, "errors by name", "pass {name: errors}")
    if missing := set(true_errors) - set(bounds):
        raise ValueError(f"expected bounds for every name of errors, got none for {sorted(missing)}; add them")
    for i, name in enumerate(bounds):
        color, line = COLORS[i % len(COLORS)], LINES[i % len(LINES)]
        above = _positive(bounds[name], f"bounds of {name}")
        label = f"{name}: bound" if true_errors else name
        ax.plot(above, label=label, color=color, linestyle=line, linewidth=1.4)
        if name in true_errors:
            below = _positive(true_errors[name], f"errors of {name}")
            if below.shape != above.shape:
                raise ValueError(
                    f"expected {len(above)} errors of {name}, one for each of its bounds, got {len(below)}; correct it"
                )
            marks: dict[str, Any] = {"marker": MARKERS[i % len(MARKERS)], "markersize": 3.5, "linestyle": "none"}
            ax.plot(below, label=f"{name}: true error", color=color, **marks)
    if tolerance is not None:
        height = checks.positive("tolerance", tolerance)
        ax.axhline(height, label="tolerance", **REFERENCE)
    ax.set_yscale("log")
    return finished(ax, "both", xlabel=xlabel, ylabel=ylabel)


def _positive(values: Any, name: str) -> np.ndarray:
    heights = array(values, name)
    if heights.ndim != 1:
        raise ValueError(f"expected {name} of shape (K,), got {heights.shape}; pass one per iteration")
    return np.where(np.isfinite(heights) & (heights > 0), heights, np.nan)
