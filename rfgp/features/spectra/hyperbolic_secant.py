"""The spectral density of the skewed chi-squared kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from ...linalg import sampling
from .base import Spectrum


@dataclass(frozen=True)
class HyperbolicSecant(Spectrum):
    r"""The spectral density :math:`\prod_k \mathrm{sech}(\pi w_k)` of :math:`k = \prod_k \mathrm{sech}((x_k - y_k)/2)`.

    Source: B 3.2.2, Eq. 13b, with the logarithm of the errata.

    >>> HyperbolicSecant().kernel(torch.zeros(1, 1), torch.ones(1, 1))
    tensor([[0.8868]])
    """

    has_quantiles: ClassVar = True

    def draw(self, width: int, dim: int, generator: Generator | None) -> dict[str, Tensor]:
        return self.from_uniforms(sampling.uniform((width, dim), generator))

    def from_uniforms(self, uniforms: Tensor) -> dict[str, Tensor]:
        return {"weight": torch.log(torch.tan(0.5 * math.pi * uniforms)) / math.pi}

    def frequencies(self, base_draws: dict[str, Tensor], **hyperparameters: Tensor) -> tuple[Tensor, Tensor | None]:
        return base_draws["weight"], None

    def kernel(self, x: Tensor, y: Tensor, factor: float = 1.0, **hyperparameters: Tensor) -> Tensor:
        log_cosh = x.new_zeros(*torch.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-2])
        for k in range(x.shape[-1]):
            half = 0.5 * factor * (x[..., :, None, k] - y[..., None, :, k]).abs()
            log_cosh = log_cosh + half + torch.log1p(torch.exp(-2.0 * half)) - math.log(2.0)
        return torch.exp(-log_cosh)

    def density_at(self, w: Tensor, **hyperparameters: Tensor) -> Tensor:
        return torch.cosh(math.pi * w).reciprocal().prod(-1)
