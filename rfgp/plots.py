"""Figures: arrays in, matplotlib Axes out. Matplotlib is imported where a figure is drawn, and nowhere else."""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from . import _checks, _optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F3C8D", "#666666")
"""Okabe and Ito's colors, which most color-blind readers tell apart; methods take them in order."""

MARKERS = "os^Dv<>p"
LINES = ("-", (0, (5, 1.5)), (0, (1, 1)))
EXACT = "#222222"
_APART = 0.02  # octaves between neighboring methods
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
    """

    x: Any
    y: Any
    error: Any = None


def figure(rows: int, columns: int, width: float = 3.4, height: float = 2.7) -> tuple[Figure, np.ndarray]:
    """An empty figure with constrained layout, and its (rows, columns) Axes.

    :param rows: the number of rows of panels.
    :param columns: the number of columns of panels.
    :param width: the width of a panel in inches.
    :param height: the height of a panel in inches.
    :raises ImportError: without matplotlib.
    """
    rows, columns = _checks.positive_integer("rows", rows), _checks.positive_integer("columns", columns)
    width, height = _checks.positive("width", width), _checks.positive("height", height)
    check_installed()
    from matplotlib.figure import Figure

    result = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return result, result.subplots(rows, columns, squeeze=False)


def check_installed() -> None:
    """Raise an ImportError that says what to do where matplotlib is missing."""
    _optional.require("matplotlib", "matplotlib", "figures")


def comparison(
    curves: Mapping[str, Curve],
    *,
    exact: float | None = None,
    exact_x: float | None = None,
    exact_name: str = "exact",
    xlabel: str = "",
    ylabel: str = "",
    log_x: int | None = 10,
    log_y: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """One line per method, with its standard errors, and dashed lines for the exact model.

    Colors and markers follow the order of the methods, so that panels with the same methods agree. Means that are not
    finite, or not positive on a logarithmic axis, leave a gap. On an abscissa of base 2 the methods stand slightly
    apart, so that none hides another.

    :param curves: the measurements of every method by its name.
    :param exact: the ordinate of the exact model.
    :param exact_x: the abscissa of the exact model, such as its time.
    :param exact_name: the exact model in the legend.
    :param xlabel: the label of the abscissa.
    :param ylabel: the label of the ordinate.
    :param log_x: the base of a logarithmic abscissa, None for a linear one; base 2 labels every abscissa.
    :param log_y: whether the ordinate is logarithmic.
    :param ax: the axes to draw in; default: new ones.
    :returns: the axes.
    :raises ValueError: where the arrays of a method have different lengths.
    """
    ax = _axes(ax)
    if log_x is not None and not 1.0 < _checks.number(log_x) < np.inf:
        raise ValueError(f"expected a base above 1 for log_x, got {log_x!r}; None is for a linear abscissa")
    _checks.instance("curves", curves, Mapping, "curves by name", "pass {name: Curve(x, y)}")
    for name, value in (("exact", exact), ("exact_x", exact_x)):
        if value is not None:
            _checks.instance(name, value, numbers.Real, "a number", "or pass None")
    for i, (name, curve) in enumerate(curves.items()):
        _checks.instance(f"{name}", curve, Curve, "a Curve", "pass Curve(x, y)")
        x, y = _array(curve.x, f"x of {name}"), _array(curve.y, f"y of {name}")
        error = np.full(y.shape, np.nan) if curve.error is None else _array(curve.error, f"error of {name}")
        if not x.shape == y.shape == error.shape or x.ndim != 1:
            raise ValueError(
                f"expected arrays of one length for {name}, got {x.shape}, {y.shape} and {error.shape}; correct it"
            )
        drawn = np.isfinite(x) & np.isfinite(y) & ((y > 0) | (not log_y))
        ax.errorbar(
            x * 2.0 ** (_APART * (i - (len(curves) - 1) / 2)) if log_x == 2 else x,
            np.where(drawn, y, np.nan),
            yerr=np.where(np.isfinite(error) & drawn, error, 0.0),
            label=name,
            color=COLORS[i % len(COLORS)],
            marker=MARKERS[i % len(MARKERS)],
            linestyle=LINES[i // len(COLORS) % len(LINES)],
            linewidth=1.4,
            markersize=4.5,
            markeredgecolor="white",
            markeredgewidth=0.6,
            elinewidth=1.0,
            capsize=2.0,
        )
    line: dict[str, Any] = {"color": EXACT, "linestyle": "--", "linewidth": 1.1, "zorder": 1}
    if exact is not None:
        ax.axhline(exact, label=exact_name, **line)
    if exact_x is not None:
        ax.axvline(exact_x, label=exact_name, **line)
    _scale(ax, curves, log_x, log_y)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.grid(True, which="major", color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _scale(ax: Axes, curves: Mapping[str, Curve], log_x: int | None, log_y: bool) -> None:
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


def vector_field(
    points: Any,
    velocity: Any,
    variance: Any = None,
    *,
    label: str | None = "standard deviation",
    limits: tuple[float, float] | None = None,
    color: str = EXACT,
    density: float = 1.2,
    ax: Axes | None = None,
) -> Axes:
    """A field in the plane: streamlines on a grid, arrows at scattered points, over a map of its uncertainty.

    The thickness of a streamline follows the speed. Coordinates with uneven spacing are interpolated linearly to even
    ones, which streamlines need.

    :param points: a grid (R, C, 2) with the first coordinate along its rows and the second one along its columns, or
        scattered points (N, 2).
    :param velocity: the field, of the same shape.
    :param variance: its variances, of the same shape or of one dimension less; those of two components are added. The
        map shows their root; default: no map.
    :param label: the label of the color bar of the map, None for no bar.
    :param limits: the smallest and the largest value of the map; default: those of the data.
    :param color: the color of streamlines or arrows.
    :param density: how close streamlines are.
    :param ax: the axes to draw in; default: new ones.
    :returns: the axes.
    :raises ValueError: where shapes disagree, or the points are not those of a grid.
    """
    place, arrows = _array(points, "points"), _array(velocity, "velocity")
    _checks.positive("density", density)
    _check_limits(limits)
    if place.shape != arrows.shape or place.shape[-1:] != (2,):
        raise ValueError(
            f"expected points and velocity of one shape, (R, C, 2) or (N, 2), got {place.shape} and {arrows.shape}; "
            "put the coordinates last"
        )
    ax = _axes(ax)
    if variance is not None:
        spread = _array(variance, "variance")
        spread = np.sqrt(spread.sum(-1) if spread.shape == place.shape else spread)
        scalar_field(
            place, spread, label=label, limits=limits or (np.nanmin(spread), np.nanmax(spread)), colors="YlGnBu", ax=ax
        )
    speed = np.hypot(arrows[..., 0], arrows[..., 1])
    if place.ndim == 2:
        ax.quiver(*place.T, *arrows.T, color=color, angles="xy", pivot="mid", width=0.003, zorder=2)
    else:
        x, y = _axes_of(place)
        even = np.linspace(x.min(), x.max(), len(x)), np.linspace(y.min(), y.max(), len(y))
        u, v, size = np.moveaxis(_resampled(np.dstack([arrows, speed]), x, y, *even), -1, 0)
        width = 0.3 + 1.5 * size / max(float(size.max()), 1e-300)
        lines = ax.streamplot(*even, u, v, color=color, linewidth=width, density=density, arrowsize=0.8)
        lines.lines.set_zorder(2)
    return _map_axes(ax, place)


def scalar_field(
    points: Any,
    values: Any,
    *,
    levels: int | Sequence[float] | None = None,
    label: str | None = None,
    limits: tuple[float, float] | None = None,
    colors: str = "RdBu_r",
    ax: Axes | None = None,
) -> Axes:
    """A function in the plane as a map of colors, with contour lines if wanted.

    :param points: a grid (R, C, 2) as in :func:`vector_field`, or scattered points (N, 2), which are triangulated.
    :param values: the function, (R, C) or (N,); on a grid, where it is NaN nothing is drawn.
    :param levels: contour lines, as a number or as their values; default: none.
    :param label: the label of the color bar; default: no bar.
    :param limits: the values of the first and of the last color; default: symmetric about zero.
    :param colors: a color map of matplotlib.
    :param ax: the axes to draw in; default: new ones.
    :returns: the axes.
    :raises ValueError: where shapes disagree, or the points are not those of a grid.
    """
    place, z = _array(points, "points"), _array(values, "values")
    _check_colors(colors)
    _check_limits(limits)
    if isinstance(levels, str) or not isinstance(levels, Sequence | np.ndarray | None):
        _checks.positive_integer("levels", levels)
    if place.shape[:-1] != z.shape or place.shape[-1:] != (2,) or z.ndim not in (1, 2):
        raise ValueError(
            f"expected points (R, C, 2) and values (R, C), or (N, 2) and (N,), got {place.shape} and {z.shape}; "
            "pass a value per point"
        )
    ax = _axes(ax)
    largest = float(np.nanmax(np.abs(z)))
    low, high = (-largest, largest) if limits is None else limits
    options: dict[str, Any] = {"cmap": colors, "vmin": low, "vmax": high, "zorder": 0, "rasterized": True}
    lines: dict[str, Any] = {"levels": levels, "colors": EXACT, "linewidths": 0.6, "zorder": 1}
    if z.ndim == 2:
        x, y = _axes_of(place)
        shading: Any = "gouraud" if np.isfinite(z).all() else "nearest"
        drawn: Any = ax.pcolormesh(x, y, z, shading=shading, **options)
        if levels is not None:
            ax.contour(x, y, z, **lines)
    else:
        drawn = ax.tripcolor(place[:, 0], place[:, 1], z, shading="gouraud", **options)
        if levels is not None:
            ax.tricontour(place[:, 0], place[:, 1], z, **lines)
    if label is not None:
        ax.figure.colorbar(drawn, ax=ax, label=label, shrink=0.85, pad=0.02)
    return _map_axes(ax, place)


def _array(values: Any, name: str) -> np.ndarray:
    """An array of floats, also of a tensor that requires gradients, or a ValueError where there are no such numbers."""
    if hasattr(values, "detach"):
        values = _checks.tensor(values, name).detach().cpu().numpy()
    if not np.iscomplexobj(values):
        with contextlib.suppress(TypeError, ValueError):
            return np.asarray(values, dtype=float)
    raise ValueError(f"expected real numbers for {name}, got {type(values).__name__}; pass an array")


def _check_limits(limits: Any) -> None:
    """Raise where limits are neither None nor two numbers in order."""
    if limits is None:
        return
    is_pair = isinstance(limits, list | tuple) and len(limits) == 2
    if not is_pair or not -np.inf < _checks.number(limits[0]) <= _checks.number(limits[1]) < np.inf:
        raise ValueError(f"expected two numbers in order for limits, got {limits!r}; such as (0.0, 1.0)")


def _axes(ax: Any) -> Axes:
    """The axes, by default new ones."""
    if ax is None:
        return figure(1, 1)[1][0, 0]
    check_installed()
    from matplotlib.axes import Axes

    _checks.instance("ax", ax, Axes, "matplotlib Axes", "such as rfgp.plots.figure(1, 1)[1][0, 0]")
    return ax


def _check_colors(name: Any) -> None:
    check_installed()
    import matplotlib

    if name not in list(matplotlib.colormaps):
        raise ValueError(f'expected the name of a color map of matplotlib, got {name!r}; such as "viridis"')


def _axes_of(grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The coordinates of the columns and of the rows of a grid, (R, C, 2)."""
    x, y = grid[0, :, 0], grid[:, 0, 1]
    if not (np.allclose(grid[..., 0], x[None]) and np.allclose(grid[..., 1], y[:, None])):
        raise ValueError(
            "expected a grid with one first coordinate in every column and one second coordinate in every row, got "
            "others; transpose it, or flatten it to scattered points"
        )
    return x, y


def _resampled(values: np.ndarray, x: np.ndarray, y: np.ndarray, to_x: np.ndarray, to_y: np.ndarray) -> np.ndarray:
    """Values (R, C, ...) on a grid interpolated linearly to another one, with coordinates in any order."""
    i, j = x.argsort(), y.argsort()
    grid = scipy.interpolate.RegularGridInterpolator((y[j], x[i]), values[j][:, i])
    return grid(tuple(np.meshgrid(to_y, to_x, indexing="ij")))


def _map_axes(ax: Axes, place: np.ndarray) -> Axes:
    """Equal scales in both directions, and no more than the points."""
    flat = place.reshape(-1, 2)
    (left, bottom), (right, top) = flat.min(0), flat.max(0)
    ax.set(aspect="equal", xlim=(left, right), ylim=(bottom, top))
    return ax


def legend(target: Figure, panels: Sequence[Axes], columns: int = 4) -> None:
    """One legend for all panels below the figure, every label once.

    :param target: the figure.
    :param panels: its axes.
    :param columns: the number of columns of the legend.
    """
    handles: dict[str, Any] = {}
    for ax in panels:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    target.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=min(columns, len(handles)),
        frameon=False,
        fontsize="small",
    )
