"""Optical random features: powers of the intensity of light behind a scattering medium."""

from __future__ import annotations

import math
from typing import Self

import torch
from torch import Generator, Tensor

from .._support import checks
from ..linalg import sampling
from .base import EstimateVariance, FeatureMap


class OpticalFeatures(FeatureMap):
    r"""Powers of the modulus of complex Gaussian projections, :math:`\phi(x) = |U x|^m / \sqrt D`.

    .. math:: k_m(x, y) = (s!)^2 \sum_{i=0}^s \binom{s}{i}^2 (x^\top y)^{2 i} (\|x\| \|y\|)^{2 (s - i)}, \quad m = 2 s

    Other parameters are those of every :class:`FeatureMap`.

    :param exponent: m, an even number from 2 to 20.
    :raises ValueError: for an odd exponent.

    Source: T 6.2, Eq. 6.1 to 6.4.

    >>> OpticalFeatures(3, 100)(torch.ones(5, 3)).shape
    torch.Size([5, 100])
    """

    weight: Tensor
    has_unbiased_columns = True

    def __init__(
        self,
        input_dim: int,
        num_features: int,
        exponent: int = 2,
        *,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(input_dim, num_features)
        self.exponent = even_exponent(exponent)
        self._register_weights(generator, dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, exponent={self.exponent}"

    def _draw(self, generator: Generator | None) -> dict[str, Tensor]:
        return {"weight": torch.stack(sampling.complex_gaussian((self.num_features, self.input_dim), generator))}

    def rows(self, x: Tensor, **hyperparameters: Tensor) -> Tensor:
        intensity = (x @ self.weight[0].mT).square() + (x @ self.weight[1].mT).square()
        return intensity ** (self.exponent // 2) / math.sqrt(self.num_features)

    def target(self, x: Tensor, y: Tensor, **hyperparameters: Tensor) -> Tensor:
        """The limit kernel, T Eq. 6.4, (..., N, M)."""
        return optical_kernel(self._check(x), self._check(y, "y"), self.exponent)

    def moments(self, x: Tensor, y: Tensor, **hyperparameters: Tensor) -> EstimateVariance:
        """Variance :math:`(k_{2 m} - k_m^2)/D`, with the square that the text leaves out; (..., N, M)."""
        self._check_pair(x, y)
        mean = optical_kernel(x, y, self.exponent)
        variance = (optical_kernel(x, y, 2 * self.exponent) - mean.square()) / self.num_features
        return EstimateVariance(variance, variance)

    @property
    def operations(self) -> float:
        return 2.0 * self.num_features * (self.input_dim + 2)

    @classmethod
    def examples(cls) -> list[Self]:
        return [cls(3, 8, exponent, generator=torch.Generator().manual_seed(exponent)) for exponent in (2, 4)]


def even_exponent(exponent: int) -> int:
    """Return the exponent, or raise where it is not an even number from 2 to 20."""
    exponent = checks.positive_integer("exponent", exponent, largest=20)
    if exponent % 2:
        raise ValueError(f"expected an even exponent, got {exponent}; use {exponent + 1}")
    return exponent


def optical_kernel(x: Tensor, y: Tensor, exponent: int) -> Tensor:
    """The kernel of optical features, (..., N, M); see :class:`OpticalFeatures`."""
    half = exponent // 2
    inner = (x @ y.mT).square()
    norms = x.square().sum(-1)[..., :, None] * y.square().sum(-1)[..., None, :]
    terms = [math.comb(half, i) ** 2 * inner**i * norms ** (half - i) for i in range(half + 1)]
    return math.factorial(half) ** 2 * torch.stack(terms).sum(0)
