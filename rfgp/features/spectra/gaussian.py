"""The spectral density of the Gaussian kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from ...linalg import sampling
from .base import IsotropicSpectrum
from .lattice import gaussian_beside_zero


@dataclass(frozen=True)
class Gaussian(IsotropicSpectrum):
    r"""The spectral density of the Gaussian kernel :math:`k = \exp(-\|x - y\|^2/2)`: standard normal frequencies.

    >>> Gaussian().kernel(torch.zeros(1, 2), torch.ones(1, 2))
    tensor([[0.3679]])
    """

    has_quantiles: ClassVar = True

    def radius(self, width: int, dim: int, generator: Generator | None) -> Tensor:
        return sampling.chi(dim, (width,), generator)

    def from_uniforms(self, uniforms: Tensor) -> dict[str, Tensor]:
        return {"weight": torch.special.ndtri(uniforms)}

    def of_distance(self, distance: Tensor, **hyperparameters: Tensor) -> Tensor:
        return torch.exp(-0.5 * distance.square())

    def density_at(self, w: Tensor, **hyperparameters: Tensor) -> Tensor:
        return torch.exp(-0.5 * w.square().sum(-1)) * (2.0 * math.pi) ** (-0.5 * w.shape[-1])

    def beside_zero(self, periods: Tensor, **hyperparameters: Tensor) -> Tensor:
        return gaussian_beside_zero(periods.square())
