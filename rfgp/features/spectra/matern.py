"""The spectral densities of Matern kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from ..._support import checks
from ...linalg import sampling
from .base import IsotropicSpectrum
from .lattice import mixture_beside_zero
from .polar import chi_ratio_radius, polar
from .special_functions import gamma_quadrature


@dataclass(frozen=True)
class Matern(IsotropicSpectrum):
    """The spectral density of a Matern kernel: Student-t frequencies with 2 nu degrees of freedom.

    :param nu: the smoothness: 1/2, 3/2 or 5/2; for 1/2 gradients in the lengthscale do not converge.

    >>> Matern(0.5).kernel(torch.zeros(1, 1), torch.ones(1, 1))
    tensor([[0.3679]])
    """

    has_quantiles: ClassVar = True
    nu: float = 2.5

    def __post_init__(self) -> None:
        if checks.number(self.nu) not in (0.5, 1.5, 2.5):
            raise ValueError(f"expected nu 0.5, 1.5 or 2.5, got {self.nu!r}; choose one of these")

    def radius(self, width: int, dim: int, generator: Generator | None) -> Tensor:
        chi = sampling.chi(dim, (width,), generator)
        return chi * math.sqrt(2.0 * self.nu) / sampling.chi(2.0 * self.nu, (width,), generator)

    def from_uniforms(self, uniforms: Tensor) -> dict[str, Tensor]:
        directions, tail = polar(uniforms)
        radii = math.sqrt(2.0 * self.nu) * chi_ratio_radius(uniforms.shape[-1], 2.0 * self.nu, tail)
        return {"weight": radii[:, None] * directions}

    def of_distance(self, distance: Tensor, **hyperparameters: Tensor) -> Tensor:
        r = math.sqrt(2.0 * self.nu) * distance
        polynomial = {0.5: torch.ones_like(r), 1.5: 1.0 + r, 2.5: 1.0 + r + r.square() / 3.0}[self.nu]
        return polynomial * torch.exp(-r)

    def density_at(self, w: Tensor, **hyperparameters: Tensor) -> Tensor:
        half, order = 0.5 * w.shape[-1], self.nu + 0.5 * w.shape[-1]
        constant = math.gamma(order) / (math.gamma(self.nu) * (2.0 * math.pi * self.nu) ** half)
        return constant * (1.0 + w.square().sum(-1) / (2.0 * self.nu)) ** -order

    def beside_zero(self, periods: Tensor, **hyperparameters: Tensor) -> Tensor:
        logs, log_shares = gamma_quadrature(periods.new_tensor(self.nu))  # of the inverse variance of the frequencies
        return mixture_beside_zero(periods, -logs, log_shares)
