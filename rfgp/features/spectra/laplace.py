"""The spectral density of the Laplace kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from ...linalg import sampling
from .base import Spectrum
from .lattice import laplace_beside_zero


@dataclass(frozen=True)
class Laplace(Spectrum):
    r"""The spectral density of the Laplace kernel :math:`k = \exp(-\|x - y\|_1)`: independent Cauchy frequencies.

    Gradients of the features in the lengthscale do not converge.

    >>> Laplace().kernel(torch.zeros(1, 2), torch.ones(1, 2))
    tensor([[0.1353]])
    """

    has_quantiles: ClassVar = True
    is_separable: ClassVar = True

    def draw(self, width: int, dim: int, generator: Generator | None) -> dict[str, Tensor]:
        return self.from_uniforms(sampling.uniform((width, dim), generator))

    def from_uniforms(self, uniforms: Tensor) -> dict[str, Tensor]:
        return {"weight": torch.tan(math.pi * (uniforms - 0.5))}

    def frequencies(self, base_draws: dict[str, Tensor], **hyperparameters: Tensor) -> tuple[Tensor, Tensor | None]:
        return base_draws["weight"], None

    def kernel(self, x: Tensor, y: Tensor, factor: float = 1.0, **hyperparameters: Tensor) -> Tensor:
        return torch.exp(-factor * torch.cdist(x, y, p=1.0))

    def density_at(self, w: Tensor, **hyperparameters: Tensor) -> Tensor:
        return (math.pi * (1.0 + w.square())).reciprocal().prod(-1)

    def beside_zero(self, periods: Tensor, **hyperparameters: Tensor) -> Tensor:
        return laplace_beside_zero(periods)
