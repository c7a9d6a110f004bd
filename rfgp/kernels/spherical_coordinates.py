"""Latitude and longitude as points of the unit sphere, for kernels without a date line and poles."""

from __future__ import annotations

import gpytorch
import torch
from torch import Tensor

from .._support import checks
from .._support.torch_names import has_values

_LIMITS = {"latitude": 90.0, "longitude": 360.0}


class SphericalCoordinates(gpytorch.Module):
    r"""Latitude and longitude as a unit vector, so that kernels on R^3 are kernels on the sphere.

    .. math:: g(\varphi, \lambda) = (\cos\varphi \cos\lambda, \; \cos\varphi \sin\lambda, \; \sin\varphi), \qquad
        |g - g'| = 2 \sin(\theta / 2)

    Distances are chords: :math:`\theta` is the angle between two points, and a lengthscale :math:`\ell` is an angle of
    :math:`2 \arcsin(\ell / 2)`, about :math:`57.3\,\ell` degrees, or :math:`6371\,\ell` km on Earth. A kernel with
    one lengthscale for all three columns is the same in every rotation of the sphere. There are no parameters.

    The unit vector comes first, then the other columns in their order. The transform may be a part of an
    :class:`InputTransformKernel`, or make the inputs of any model.

    :param latitude: the column of latitudes, in degrees from -90 to 90.
    :param longitude: the column of longitudes, in degrees from -360 to 360.
    :raises ValueError: for columns that are no two different integers of at least 0; when called, for inputs without
        them, or values out of range.

    Source: J. Guinness and M. Fuentes, Isotropic covariance functions on spheres, 2016, Section 3.

    >>> places = torch.tensor([[0.0, 90.0], [90.0, 12.0]])
    >>> SphericalCoordinates()(places).round().abs().tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    def __init__(self, latitude: int = 0, longitude: int = 1) -> None:
        super().__init__()
        self.latitude = _column("latitude", latitude)
        self.longitude = _column("longitude", longitude)
        if self.latitude == self.longitude:
            raise ValueError(f"expected two columns, got {latitude} for latitude and longitude; name both")

    def forward(self, x: Tensor) -> Tensor:
        """The unit vectors and the other columns (..., N, d + 1) of inputs (..., N, d)."""
        checks.inputs(x)
        places = (self.latitude, self.longitude)
        if max(places) >= x.shape[-1]:
            raise ValueError(
                f"expected latitude and longitude in columns {places[0]} and {places[1]}, got {x.shape[-1]} columns; "
                "say where they are by latitude= and longitude="
            )
        for column, (name, limit) in zip(places, _LIMITS.items(), strict=True):
            _check_range(x[..., column].detach(), name, limit)
        latitude, longitude = (torch.deg2rad(x[..., column]) for column in places)
        radius = latitude.cos()
        vector = torch.stack([radius * longitude.cos(), radius * longitude.sin(), latitude.sin()], dim=-1)
        others = [column for column in range(x.shape[-1]) if column not in places]
        return torch.cat([vector, x[..., others]], dim=-1)


def _column(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"expected the number of the column of {name}, from 0, got {value!r}; count from the left")
    return value


def _check_range(degrees: Tensor, name: str, limit: float) -> None:
    if has_values() and not bool((degrees.abs() <= limit).all()):
        got = float(degrees[~(degrees.abs() <= limit)].flatten()[0])
        raise ValueError(
            f"expected a {name} in degrees from -{limit:g} to {limit:g}, got {got:g}; correct it, or name other "
            "columns as latitude and longitude"
        )
