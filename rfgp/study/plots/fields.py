"""Fields and functions in the plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from ..._support import checks
from .base import EXACT, array, axes, check_color, check_colors, check_limits, check_words, finite

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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

    :param points: a grid (R, C, 2) with the first coordinate along its rows and the second one along its columns, or
        scattered points (N, 2).
    :param velocity: the field, of the same shape.
    :param variance: its variances, of the same shape or of one dimension less, whose root is the map; default: no map.
    :param label: the label of the color bar of the map, None for no bar.
    :param limits: the smallest and the largest value of the map; default: those of the data.
    :param ax: the axes to draw in; default: new ones.
    :raises ValueError: where shapes disagree, or the points are not those of a grid.

    >>> points = np.random.default_rng(0).random((20, 2))
    >>> ax = vector_field(points, points - 0.5)
    """
    place, arrows = finite(points, "points"), array(velocity, "velocity")
    density = checks.positive("density", density)
    check_words(label=label)
    check_color("color", color)
    check_limits(limits)
    if place.shape != arrows.shape or place.shape[-1:] != (2,):
        raise ValueError(
            f"expected points and velocity of one shape, (R, C, 2) or (N, 2), got {place.shape} and {arrows.shape}; "
            "put the coordinates last"
        )
    ax = axes(ax)
    if variance is not None:
        spread = array(variance, "variance")
        if spread.shape not in (place.shape, place.shape[:-1]):
            raise ValueError(
                f"expected variances of the shape of points, or of one dimension less, got {place.shape} and "
                f"{spread.shape}; pass them per point"
            )
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
    :param ax: the axes to draw in; default: new ones.
    :raises ValueError: where shapes disagree, or the points are not those of a grid.

    >>> points = np.random.default_rng(0).random((20, 2))
    >>> ax = scalar_field(points, points[:, 0], label="height in m")
    """
    place, z = finite(points, "points"), array(values, "values")
    check_words(label=label)
    check_colors(colors)
    check_limits(limits)
    levels = _levels(levels)
    if place.shape[:-1] != z.shape or place.shape[-1:] != (2,) or z.ndim not in (1, 2):
        raise ValueError(
            f"expected points (R, C, 2) and values (R, C), or (N, 2) and (N,), got {place.shape} and {z.shape}; "
            "pass a value per point"
        )
    ax = axes(ax)
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
        finite(z, "values beside a grid")
        drawn = ax.tripcolor(place[:, 0], place[:, 1], z, shading="gouraud", **options)
        if levels is not None:
            ax.tricontour(place[:, 0], place[:, 1], z, **lines)
    if label is not None:
        ax.figure.colorbar(drawn, ax=ax, label=label, shrink=0.85, pad=0.02)
    return _map_axes(ax, place)


def _levels(levels: Any) -> Any:
    """A number of contour lines, or their values, which have to increase."""
    if levels is None:
        return None
    if not isinstance(levels, list | tuple | np.ndarray):
        return checks.positive_integer("levels", levels)
    values = finite(levels, "levels")
    if values.ndim != 1 or not (np.diff(values) > 0.0).all():
        raise ValueError(f"expected increasing numbers for levels, got {levels!r}; sort them, each once")
    return values


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
