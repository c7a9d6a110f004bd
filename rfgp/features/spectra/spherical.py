"""The spectral density of polynomial kernels on the unit sphere."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor

from ..._support import checks
from ...linalg import sampling
from .base import IsotropicSpectrum
from .sphere_mixture import fit_mixture, sphere_mean


@dataclass(frozen=True)
class Spherical(IsotropicSpectrum):
    r"""Radii on a grid whose kernel is close to :math:`(1 - \|x - y\|^2/a^2)^p` at distances from 0 to 2.

    .. math:: \hat k(\tau) = \sum_i c_i \Lambda_d(r_i \tau), \qquad c_i \ge 0, \quad \sum_i c_i = 1
    """

    degree: int
    a: float
    dim: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", checks.positive_integer("degree", self.degree))
        object.__setattr__(self, "dim", checks.positive_integer("dim", self.dim))
        if not 2.0 <= checks.number(self.a) < math.inf:
            raise ValueError(f"expected a of at least 2, got {self.a!r}; smaller ones have no spectral density")

    def radius(self, width: int, dim: int, generator: Generator | None) -> Tensor:
        radii, shares = self._fit()[:2]
        index = torch.searchsorted(
            torch.as_tensor(shares.cumsum(), device="cpu")[:-1], sampling.uniform((width,), generator)
        )
        return torch.as_tensor(radii, device="cpu")[index]

    def of_distance(self, distance: Tensor, **hyperparameters: Tensor) -> Tensor:
        values = distance.detach().to("cpu", torch.float64).numpy()
        radii, shares, _ = self._fit()
        total = sum(c * sphere_mean(self.dim, r * values) for r, c in zip(radii, shares, strict=True))
        return torch.as_tensor(np.asarray(total)).to(distance)

    @property
    def fit_error(self) -> float:
        """The largest difference from the polynomial kernel over distances from 0 to 2."""
        return self._fit()[2]

    def _fit(self) -> tuple[np.ndarray, np.ndarray, float]:
        return fit_mixture(self.degree, self.a, self.dim)
