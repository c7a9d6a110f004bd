"""Spherical random features: polynomial kernels on the unit sphere by Fourier features of a close isotropic kernel."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Generator, Tensor

from .._support.torch_names import has_values
from ..linalg import next_power_of_two
from .fourier import RandomFourier
from .spectra import Spherical

_TOLERANCE = 1e-4


class SphericalFourier(RandomFourier):
    r"""Fourier features of an isotropic kernel close to a polynomial one on the unit sphere.

    .. math:: \hat k(\|x - y\|) \approx \Big(1 - \frac{\|x - y\|^2}{a^2}\Big)^p = (\nu + \gamma x^\top y)^p, \qquad
        \nu = 1 - \frac 2 {a^2}, \quad \gamma = \frac 2 {a^2}

    ``target`` is the isotropic kernel, fitted by least squares; ``fit_error`` is its distance from the polynomial one.
    Other parameters are those of :class:`RandomFourier`.

    :param degree: the degree p.
    :param a: at least 2.
    :raises ValueError: for a below 2, and for inputs whose norm differs from 1 by more than 1e-4.

    Source: T 2.1.1 and 2.2.4 (Pennington et al., 2015).

    >>> features = SphericalFourier(3, 100, degree=10, a=4.0)
    >>> bool(features.fit_error < 1e-5)
    True
    """

    spectrum: Spherical

    def __init__(
        self,
        input_dim: int,
        num_features: int,
        degree: int,
        a: float,
        structure: str = "independent",
        is_complex: bool = False,
        *,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        dim = next_power_of_two(input_dim) if structure == "hadamard" else input_dim
        spectrum = Spherical(degree, a, dim)
        super().__init__(input_dim, num_features, spectrum, structure, is_complex, generator=generator, dtype=dtype)
        self.degree, self.a = spectrum.degree, spectrum.a
        self.is_unbiased = False

    @property
    def fit_error(self) -> float:
        """The largest difference of the isotropic kernel from the polynomial one over distances from 0 to 2."""
        return self.spectrum.fit_error

    def polynomial(self, x: Tensor, y: Tensor) -> Tensor:
        r"""The polynomial kernel :math:`(1 - \|x - y\|^2/a^2)^p`, (..., N, M)."""
        distance = torch.cdist(self._check(x), self._check(y, "y"))
        return (1.0 - distance.square() / self.a**2) ** self.degree

    def rows(self, x: Tensor, **hyperparameters: Tensor) -> Tensor:
        return super().rows(self._check(x), **hyperparameters)

    def _check(self, x: Any, name: str = "x") -> Tensor:
        super()._check(x, name)
        if not has_values():
            return x
        deviation = (x.detach().square().sum(-1).sqrt() - 1.0).abs().max()
        if not bool(deviation <= _TOLERANCE):
            raise ValueError(
                f"expected {name} on the unit sphere, got a norm that differs from 1 by {float(deviation):.2g}; "
                "divide every row by its norm"
            )
        return x

    @classmethod
    def examples(cls) -> list[Self]:
        return [
            cls(dim, width, degree, a, structure, is_complex, generator=torch.Generator().manual_seed(degree))
            for dim, width, degree, a in [(3, 8, 3, 2.0), (5, 16, 10, 4.0)]
            for structure in ("independent", "orthogonal", "hadamard")
            for is_complex in (False, True)
        ]
