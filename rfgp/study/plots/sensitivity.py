"""Which inputs matter: bars of Sobol' indices and Shapley effects, and main effects with their bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._support import checks
from .base import COLORS, EXACT, LINES, MARKERS, array, axes, check_words, finished

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def sobol_bars(
    names: Sequence[str],
    first: Any,
    total: Any,
    first_interval: tuple[Any, Any] | None = None,
    total_interval: tuple[Any, Any] | None = None,
    *,
    ylabel: str = "share of the variance",
    ax: Axes | None = None,
) -> Axes:
    """Two bars for every input, its first-order and its total index, with intervals.

    :param names: the names of the d inputs.
    :param first: first-order indices, (d,).
    :param total: total indices, (d,).
    :param first_interval: the ends of intervals of the first-order indices, two (d,); default: none.
    :param total_interval: those of the total indices.
    :param ax: the axes to draw in; default: new ones.
    :raises ValueError: where shapes disagree.

    >>> ax = sobol_bars(["slope", "height"], [0.3, 0.6], [0.4, 0.7])
    """
    bars = {"first order": (first, first_interval), "total": (total, total_interval)}
    return _bars(names, bars, ylabel, ax)


def shapley_bars(
    names: Sequence[str],
    effects: Any,
    interval: tuple[Any, Any] | None = None,
    *,
    ylabel: str = "share of the variance",
    ax: Axes | None = None,
) -> Axes:
    """A bar for the Shapley effect of every input, with its interval.

    :param names: the names of the d inputs.
    :param effects: Shapley effects, (d,).
    :param interval: the ends of their intervals, two (d,); default: none.
    :param ax: the axes to draw in; default: new ones.
    :raises ValueError: where shapes disagree.

    >>> ax = shapley_bars(["slope", "height"], [0.4, 0.6])
    """
    return _bars(names, {"Shapley effect": (effects, interval)}, ylabel, ax)


def _bars(
    names: Sequence[str], bars: Mapping[str, tuple[Any, tuple[Any, Any] | None]], ylabel: str, ax: Axes | None
) -> Axes:
    """Bars of one or two quantities beside each other for every input."""
    check_words(ylabel=ylabel)
    names = checks.names("names", names)
    ax, count, first = axes(ax), len(names), -0.2 * (len(bars) - 1)
    styles = zip((first, first + 0.4), (COLORS[0], COLORS[4]), ("", "///"), strict=True)
    for (label, (values, interval)), (shift, color, hatch) in zip(bars.items(), styles, strict=False):
        heights = _of_shape(values, (count,), label)
        place = np.arange(count) + shift
        ax.bar(place, heights, 0.36, label=label, color=color, hatch=hatch, edgecolor=EXACT, linewidth=0.6)
        if interval is not None:
            low, high = _ends(interval, (count,), f"the interval of {label}")
            ax.vlines(place, low, high, color=EXACT, linewidth=1.4)
    ax.axhline(0.0, color=EXACT, linewidth=0.8)
    ax.set_xticks(np.arange(count), names)
    return finished(ax, has_legend=True, ylabel=ylabel)


def main_effects(
    names: Sequence[str],
    grid: Any,
    effect: Any,
    interval: tuple[Any, Any] | None = None,
    *,
    xlabel: str = "input, from its lowest to its highest value",
    ylabel: str = "mean of the output",
    ax: Axes | None = None,
) -> Axes:
    """One line for every input: the mean of the output where this input is known, with its band.

    Inputs share one abscissa, from the lowest to the highest value of the grid of each.

    :param names: the names of the d inputs.
    :param grid: the values of the inputs, (G, d).
    :param effect: the conditional means, (G, d).
    :param interval: the lower and the upper ends of bands, two (G, d); default: none.
    :param ax: the axes to draw in; default: new ones.
    :raises ValueError: where shapes disagree, or there are more inputs than styles of lines.

    >>> grid = np.linspace(0.0, 1.0, 5)[:, None] * np.ones(2)
    >>> ax = main_effects(["slope", "height"], grid, grid**2)
    """
    check_words(xlabel=xlabel, ylabel=ylabel)
    x, names = array(grid, "grid"), checks.names("names", names)
    if x.ndim != 2 or x.shape[1] != len(names):
        raise ValueError(f"expected grid of shape (G, {len(names)}), got {x.shape}; pass a column for every name")
    y = _of_shape(effect, x.shape, "effect")
    largest = len(COLORS) * len(LINES)
    if len(names) > largest:
        raise ValueError(f"expected at most {largest} inputs in one panel, got {len(names)}; draw the first ones")
    ax = axes(ax)
    if len(names) > 1:
        x = (x - x[:1]) / (x[-1:] - x[:1])
        ax.set_xticks([0.0, 0.5, 1.0], ["lowest", "middle", "highest"])
    for k, name in enumerate(names):
        style: dict[str, Any] = {"color": COLORS[k % len(COLORS)], "linestyle": LINES[k % len(LINES)]}
        style |= {"marker": MARKERS[k % len(MARKERS)], "markevery": max(len(x) // 6, 1), "markersize": 4.5}
        if interval is not None:
            low, high = _ends(interval, y.shape, "interval")
            ax.fill_between(x[:, k], low[:, k], high[:, k], color=style["color"], alpha=0.22, linewidth=0)
        ax.plot(x[:, k], y[:, k], linewidth=1.4, label=name, **style)
    return finished(ax, "both", has_legend=True, xlabel=xlabel, ylabel=ylabel)


def _ends(interval: Any, shape: tuple[int, ...], name: str) -> list[np.ndarray]:
    ends = interval if isinstance(interval, tuple | list) else np.atleast_1d(array(interval, name))
    if len(ends) != 2:
        raise ValueError(f"expected the two ends of {name}, got {len(ends)}; pass the lower and the upper ones")
    return [_of_shape(end, shape, name) for end in ends]


def _of_shape(values: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    checked = array(values, name)
    if checked.shape != shape:
        raise ValueError(f"expected {name} of shape {shape}, got {checked.shape}; pass a value for every input")
    return checked
