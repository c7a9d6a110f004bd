"""Product sketches with independent Rademacher or Gaussian weights."""

from __future__ import annotations

from typing import Self

import torch
from torch import Generator, Tensor

from .._support import checks
from ..linalg import sampling
from .base import EstimateVariance
from .polynomial_sketch import PolynomialSketch
from .sketch_registry import register_sketch


@register_sketch("gaussian", weights="gaussian")
@register_sketch("rademacher", weights="rademacher")
class ProductSketch(PolynomialSketch):
    r"""Polynomial sketch with independent weights; other parameters are those of every :class:`FeatureMap`.

    .. math:: \phi(x)_\ell = \frac{1}{\sqrt D} \prod_{i=1}^p w_{i,\ell}^\top x, \qquad
        E[w_{i,\ell} w_{i,\ell}^H] = I

    :param degree: the degree p of the kernel, 1 to 20.
    :param weights: "rademacher" (signs, or fourth roots of unity), which have the smaller variance, or "gaussian".
    :raises ValueError: for an invalid degree, width or distribution.

    Source: T Eq. 3.4, 3.10 and Table 4.1 (Kar and Karnick, 2012).

    >>> sketch = ProductSketch(3, 100, degree=2, generator=torch.Generator().manual_seed(0))
    >>> sketch(torch.ones(5, 3)).shape
    torch.Size([5, 100])
    """

    weight: Tensor
    block_bytes = 32 * 2**20  # every block reads all the weights

    def __init__(
        self,
        input_dim: int,
        num_features: int,
        degree: int,
        weights: str = "rademacher",
        is_complex: bool = False,
        *,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(input_dim, num_features, degree, is_complex)
        self.weights = checks.choice("weights", weights, ("rademacher", "gaussian"))
        self._register_weights(generator, dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, weights={self.weights!r}"

    def _draw(self, generator: Generator | None) -> dict[str, Tensor]:
        shape = (self.degree, self.num_features, self.input_dim)
        if not self.is_complex:
            draw = sampling.rademacher if self.weights == "rademacher" else sampling.gaussian
            return {"weight": draw(shape, generator)}
        draw_planes = sampling.fourth_roots if self.weights == "rademacher" else sampling.complex_gaussian
        return {"weight": torch.cat(draw_planes(shape, generator), dim=1)}

    def _factor(self, i: int, x: Tensor, out: Tensor | None = None) -> Tensor:
        product = self.weight[i] @ x
        return torch.complex(*product.chunk(2)) if self.is_complex else product

    def moments(self, x: Tensor, y: Tensor, **hyperparameters: Tensor) -> EstimateVariance:
        r"""Variance and pseudo-variance of the kernel estimate, T Table 4.1 with Eq. C.4.

        .. math:: V = \tfrac 1 D \big[(\|x\|^2 \|y\|^2 + q ((x^\top y)^2 - s))^p - (x^\top y)^{2p}\big],\quad
            P = \tfrac 1 D \big[(2 (x^\top y)^2 - s)^p - (x^\top y)^{2p}\big]

        with :math:`s = \sum_k x_k^2 y_k^2` for Rademacher and 0 for Gaussian weights, and q = 1 for complex, 2 for real
        maps.
        """
        self._check_pair(x, y)
        single = single_feature_moments(x, y, self.degree, self.weights, self.is_complex)
        return EstimateVariance(single.variance / self.num_features, single.pseudo_variance / self.num_features)

    @property
    def operations(self) -> float:
        """p D (d + 1) multiplications, three times as many for complex maps on real inputs."""
        return self.degree * self.num_features * (2 * self.input_dim + 4 if self.is_complex else self.input_dim + 1)

    @classmethod
    def examples(cls) -> list[Self]:
        return [
            cls(5, 8, degree, weights, is_complex, generator=torch.Generator().manual_seed(degree))
            for degree in (1, 2, 3, 4)
            for weights in ("rademacher", "gaussian")
            for is_complex in (False, True)
        ]


def single_feature_moments(x: Tensor, y: Tensor, degree: int, weights: str, is_complex: bool) -> EstimateVariance:
    """Variance and pseudo-variance (..., N, M) of one feature of a product sketch, from which T Table 4.1 is built."""
    inner = (x @ y.mT) ** 2
    diagonal = (x**2) @ (y**2).mT if weights == "rademacher" else torch.zeros_like(inner)
    norms = (x**2).sum(-1)[..., :, None] * (y**2).sum(-1)[..., None, :]
    mean = inner**degree
    if not is_complex:
        variance = (norms + 2.0 * (inner - diagonal)) ** degree - mean
        return EstimateVariance(variance, variance)
    return EstimateVariance((norms + inner - diagonal) ** degree - mean, (2.0 * inner - diagonal) ** degree - mean)
