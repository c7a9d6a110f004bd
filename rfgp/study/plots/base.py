"""The styles that figures share, checks of arrays and Axes, and empty figures."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._support import checks, optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F3C8D", "#666666")
"""Okabe and Ito's colors, which most color-blind readers tell apart; methods take them in order."""

MARKERS = "os^Dv<>p"
"""The markers of methods, in the same order."""

LINES = ("-", (0, (5, 1.5)), (0, (1, 1)))
"""Solid, dashed and dotted lines."""

EXACT = "#222222"
"""The color of the exact model, and of what is known."""

REFERENCE: dict[str, Any] = {"color": EXACT, "linestyle": "--", "linewidth": 1.1, "zorder": 1}
"""The line of the exact model, and of what is known."""


def figure(rows: int, columns: int, width: float = 3.4, height: float = 2.7) -> tuple[Figure, np.ndarray]:
    """An empty figure with constrained layout, and its (rows, columns) Axes.

    :param width: the width of a panel in inches.
    :param height: the height of a panel in inches.
    :raises ImportError: without matplotlib.

    >>> result, panels = figure(1, 2)
    >>> panels.shape
    (1, 2)
    """
    rows, columns = checks.positive_integer("rows", rows), checks.positive_integer("columns", columns)
    width, height = checks.positive("width", width), checks.positive("height", height)
    check_installed()
    from matplotlib.figure import Figure

    result = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return result, result.subplots(rows, columns, squeeze=False)


def check_installed() -> None:
    """Raise an ImportError that says what to do where matplotlib is missing."""
    optional.require("matplotlib", "matplotlib", "figures")


def array(values: Any, name: str) -> np.ndarray:
    """An array of floats, also of a tensor that requires gradients, or a ValueError where there are no such numbers."""
    if hasattr(values, "detach"):
        values = checks.tensor(values, name).detach().cpu().numpy()
    with contextlib.suppress(TypeError, ValueError, RuntimeError, OverflowError):
        if not np.iscomplexobj(values):
            return np.asarray(values, dtype=float)
    raise ValueError(f"expected real numbers for {name}, got {type(values).__name__}; pass an array")


def finite(values: Any, name: str) -> np.ndarray:
    """An :func:`array`, or a ValueError where some numbers are not finite."""
    numbers = array(values, name)
    if not np.isfinite(numbers).all():
        raise ValueError(f"expected finite {name}, got NaN or infinite ones; leave these out")
    return numbers


def check_words(**words: Any) -> None:
    """Raise where what figures write is neither None nor a string."""
    for name, value in words.items():
        checks.instance(name, value, (str, type(None)), "a string", "pass the words that the figure writes")


def literal(text: str) -> str:
    r"""A text that figures write as it is, although matplotlib takes what is between dollars for mathematics.

    >>> literal("price in $")
    'price in \\$'
    """
    return text.replace("$", r"\$")


def check_color(name: str, value: Any) -> None:
    """Raise where matplotlib knows no such color."""
    check_installed()
    from matplotlib.colors import is_color_like

    if not isinstance(value, str | tuple) or not is_color_like(value):
        raise ValueError(f'expected a color of matplotlib for {name}, got {value!r}; such as "black"')


def check_limits(limits: Any) -> None:
    """Raise where limits are neither None nor two numbers in order."""
    if limits is None:
        return
    is_pair = isinstance(limits, list | tuple) and len(limits) == 2
    if not is_pair or not -np.inf < checks.number(limits[0]) <= checks.number(limits[1]) < np.inf:
        raise ValueError(f"expected two numbers in order for limits, got {limits!r}; such as (0.0, 1.0)")


def check_lengths(name: str, x: np.ndarray, y: np.ndarray, error: np.ndarray) -> None:
    """Raise where arrays (K,) have different lengths."""
    if not x.shape == y.shape == error.shape or x.ndim != 1:
        raise ValueError(
            f"expected arrays of one length for {name}, got {x.shape}, {y.shape} and {error.shape}; correct it"
        )


def style(place: int) -> dict[str, Any]:
    """The color, the marker and the line of a method by its place."""
    line = LINES[place // len(COLORS) % len(LINES)]
    return {"color": COLORS[place % len(COLORS)], "marker": MARKERS[place % len(MARKERS)], "linestyle": line}


def finished(ax: Axes, grid: Any = None, has_legend: bool = False, **properties: Any) -> Axes:
    """Set properties of axes, and draw an open frame, a grid along "x", "y" or "both", and a legend."""
    ax.set(**properties)
    if grid is not None:
        ax.grid(True, which="major", axis=grid, color="#DDDDDD", linewidth=0.6)
        ax.set_axisbelow(True)
    if has_legend:
        ax.legend(frameon=False, fontsize="small")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def axes(ax: Any) -> Axes:
    """The axes, by default new ones."""
    if ax is None:
        return figure(1, 1)[1][0, 0]
    check_installed()
    from matplotlib.axes import Axes

    checks.instance("ax", ax, Axes, "matplotlib Axes", "such as rfgp.study.plots.figure(1, 1)[1][0, 0]")
    return ax


def check_colors(name: Any) -> None:
    """Raise where matplotlib has no color map of that name."""
    check_installed()
    import matplotlib

    if name not in list(matplotlib.colormaps):
        raise ValueError(f'expected the name of a color map of matplotlib, got {name!r}; such as "viridis"')


def legend(target: Figure, panels: Sequence[Axes], columns: int = 4) -> None:
    """One legend for all panels below the figure, every label once; it replaces the legends inside the panels.

    :param columns: the number of columns of the legend.

    >>> result, panels = figure(1, 1)
    >>> line = panels[0, 0].plot([0.0, 1.0], [1.0, 2.0], label="mean")
    >>> legend(result, [panels[0, 0]])
    >>> result.legends[0].get_texts()[0].get_text()
    'mean'
    """
    checks.instance("panels", panels, (Sequence, np.ndarray), "a list of axes", "take those of figure()")
    for name, value in (("target", target), *(("every panel", panel) for panel in panels)):
        wanted = "legend" if name == "target" else "get_legend_handles_labels"
        if not hasattr(value, wanted):
            raise ValueError(f"expected matplotlib's figure and axes for {name}, got {value!r}; take those of figure()")
    columns = checks.positive_integer("columns", columns)
    handles: dict[str, Any] = {}
    for ax in panels:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
        if (inside := ax.get_legend()) is not None:
            inside.remove()
    target.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=min(columns, len(handles)),
        frameon=False,
    )
