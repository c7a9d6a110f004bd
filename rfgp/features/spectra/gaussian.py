"""The spectral density of the Gaussian kernel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ... import sampling
from .base import IsotropicSpectrum


@dataclass(frozen=True)
class Gaussian(IsotropicSpectrum):
    r"""The spectral density of the Gaussian kernel :math:`k = \exp(-\|x - y\|^2/2)`: standard normal frequencies.

    >>> from rfgp.features import RandomFourier
    >>> RandomFourier(2, 10, spectrum=Gaussian())(torch.zeros(3, 2)).shape
    torch.Size([3, 10])
    """

    def radius(self, width: int, dim: int, generator: Generator | None) -> Tensor:
        return sampling.chi(dim, (width,), generator)

    def of_distance(self, distance: Tensor, **hyperparameters: Tensor) -> Tensor:
        return torch.exp(-0.5 * distance.square())
