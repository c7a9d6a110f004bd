"""A change of measure: Gaussian frequencies of twice the variance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from ...linalg import sampling
from .base import IsotropicSpectrum
from .gaussian import Gaussian


@dataclass(frozen=True)
class WidenedGaussian(IsotropicSpectrum):
    r"""A change of measure to normal frequencies of twice the variance, which bounds features of derivatives.

    .. math:: w \sim N(0, 2 I), \qquad a(w) = 2^{d/4} \exp(-\|w\|^2/8)

    Source: M Eq. 40 and 42 (with unit lengthscale, that is sigma = sqrt(2) there).

    >>> WidenedGaussian().kernel(torch.zeros(1, 2), torch.ones(1, 2))
    tensor([[0.3679]])
    """

    has_moments: ClassVar = False
    has_quantiles: ClassVar = True

    def radius(self, width: int, dim: int, generator: Generator | None) -> Tensor:
        return math.sqrt(2.0) * sampling.chi(dim, (width,), generator)

    def from_uniforms(self, uniforms: Tensor) -> dict[str, Tensor]:
        return {"weight": math.sqrt(2.0) * torch.special.ndtri(uniforms)}

    def frequencies(self, base_draws: dict[str, Tensor], **hyperparameters: Tensor) -> tuple[Tensor, Tensor | None]:
        frequencies = base_draws["weight"]
        return frequencies, 2.0 ** (0.25 * frequencies.shape[-1]) * torch.exp(-0.125 * frequencies.square().sum(-1))

    def of_distance(self, distance: Tensor, **hyperparameters: Tensor) -> Tensor:
        return Gaussian().of_distance(distance)
