"""Polynomial sketches with structured weights: subsampled randomized Hadamard transforms (TensorSRHT)."""

from __future__ import annotations

import math
from typing import Self

import torch
from torch import Generator, Tensor

from .._support import checks
from ..linalg import fwht, next_power_of_two, sampling
from .base import EstimateVariance
from .polynomial_sketch import PolynomialSketch
from .product import single_feature_moments
from .sketch_registry import register_sketch


@register_sketch("tensor_srht_stacked", variant="stacked")
@register_sketch("tensor_srht", variant="upsampled")
class TensorSRHT(PolynomialSketch):
    r"""Polynomial sketch whose weights are rows of a randomly signed Hadamard matrix: O(p (d log d + D)) per input.

    .. math:: \phi(x) = \frac{1}{\sqrt D} \bigodot_{i=1}^p P_i H S_i x

    S holds random signs (fourth roots of unity for the complex map), H is the Hadamard matrix and P picks D of its
    rows. Inputs are padded to a power of two. Other parameters are those of every :class:`FeatureMap`.

    :param degree: the degree p of the kernel, 1 to 20.
    :param variant: "upsampled" draws one sign vector per degree and its rows from shuffled copies of 1..d, which is
        faster; "stacked" draws new signs for every block of d columns.
    :raises ValueError: for a degree, width or variant that does not exist.

    Source: T 3.5 (Algorithm 2) and 3.5.1, Table 4.1 with an independent permutation per degree.

    >>> sketch = TensorSRHT(3, 100, degree=2, generator=torch.Generator().manual_seed(0))
    >>> sketch(torch.ones(5, 3)).shape
    torch.Size([5, 100])
    """

    signs: Tensor
    index: Tensor

    def __init__(
        self,
        input_dim: int,
        num_features: int,
        degree: int,
        variant: str = "upsampled",
        is_complex: bool = False,
        *,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(input_dim, num_features, degree, is_complex)
        self.variant = checks.choice("variant", variant, ("upsampled", "stacked"))
        self.padded_dim = next_power_of_two(self.input_dim)
        self._register_weights(generator, dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, variant={self.variant!r}"

    @property
    def num_blocks(self) -> int:
        """The number of independent sign vectors per degree."""
        return 1 if self.variant == "upsampled" else -(-self.num_features // self.padded_dim)

    def _draw(self, generator: Generator | None) -> dict[str, Tensor]:
        shape = (self.degree, self.num_blocks, self.padded_dim)
        if self.is_complex:
            signs = torch.stack(sampling.fourth_roots(shape, generator), dim=1)
        else:
            signs = sampling.rademacher(shape, generator).unsqueeze(1)
        draw = sampling.shuffled_copies if self.variant == "upsampled" else sampling.stacked_permutations
        index = [draw(self.padded_dim, self.num_features, generator) for _ in range(self.degree)]
        return {"signs": signs, "index": torch.stack(index)}

    def _factor(self, i: int, x: Tensor, out: Tensor | None = None) -> Tensor:
        padded = torch.nn.functional.pad(x, (0, 0, 0, self.padded_dim - self.input_dim))
        transformed = fwht(self.signs[i].unsqueeze(-1) * padded, dim=-2).flatten(1, 2)
        projected = torch.complex(transformed[0], transformed[1]) if self.is_complex else transformed[0]
        return torch.index_select(projected, 0, self.index[i], out=out)

    def moments(self, x: Tensor, y: Tensor, **hyperparameters: Tensor) -> EstimateVariance:
        r"""Variance and pseudo-variance of the kernel estimate, T Table 4.1 with single-feature values inside C.

        .. math:: V = \frac{V^{(p)}}{D} - \frac{c}{D^2} \Big[(x^\top y)^{2p} - \Big((x^\top y)^2 -
            \frac{V^{(1)}}{m - 1}\Big)^p\Big]

        with the Rademacher values :math:`V^{(p)}` of one feature; c counts the ordered pairs of columns that share
        their signs. Stacked: m = d padded, c = floor(D/d) d (d - 1) + r (r - 1) with r = D mod d. Upsampled:
        m = ceil(D/d) d, c = D (D - 1). The pseudo-variance has pseudo-variances in place of variances. d = 1 is exact.
        """
        self._check_pair(x, y)
        pool, pairs = self._pool_and_pairs()
        single = single_feature_moments(x, y, self.degree, "rademacher", self.is_complex)
        if pool == 1:
            return EstimateVariance(torch.zeros_like(single.variance), torch.zeros_like(single.variance))
        linear = single_feature_moments(x, y, 1, "rademacher", self.is_complex)
        inner, width = (x @ y.mT) ** 2, self.num_features

        def structured(one: Tensor, one_linear: Tensor) -> Tensor:
            covariance = (inner - one_linear / (pool - 1)) ** self.degree - inner**self.degree
            return one / width + (pairs / width**2) * covariance

        return EstimateVariance(
            structured(single.variance, linear.variance), structured(single.pseudo_variance, linear.pseudo_variance)
        )

    def _pool_and_pairs(self) -> tuple[int, int]:
        """The number of rows that indices are drawn from, and of ordered pairs of columns that share their signs."""
        width, dim = self.num_features, self.padded_dim
        if self.variant == "upsampled":
            return -(-width // dim) * dim, width * (width - 1)
        full, rest = divmod(width, dim)
        return dim, full * dim * (dim - 1) + rest * (rest - 1)

    @property
    def operations(self) -> float:
        """p (d log d) for every block of signs, and p D for the product."""
        transform = self.num_blocks * self.padded_dim * max(1.0, math.log2(self.padded_dim))
        return self.degree * (
            transform * (2 if self.is_complex else 1) + self.num_features * (4 if self.is_complex else 1)
        )

    @classmethod
    def examples(cls) -> list[Self]:
        return [
            cls(input_dim, num_features, degree, variant, is_complex, generator=torch.Generator().manual_seed(degree))
            for input_dim, num_features, degree in [(4, 8, 1), (3, 3, 2), (4, 4, 3), (5, 12, 2), (4, 10, 4), (1, 4, 3)]
            for variant in ("upsampled", "stacked")
            for is_complex in (False, True)
        ]
