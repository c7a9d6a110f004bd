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

_SMALLEST_ORDER, _MOST_EXTRA = 16, 8
"""Columns that are transformed at least, and those beside them at most, where some are not."""


@register_sketch("tensor_srht_stacked", variant="stacked")
@register_sketch("tensor_srht", variant="upsampled")
class TensorSRHT(PolynomialSketch):
    r"""Polynomial sketch whose weights are rows of a randomly signed Hadamard matrix: O(p (d log d + D)) per input.

    .. math:: \phi(x) = \frac{1}{\sqrt D} \bigodot_{i=1}^p P_i H S_i x

    S holds random signs (fourth roots of unity for the complex map), H is the Hadamard matrix and P picks D of its
    rows. Inputs are padded to a power of two. Where d = m + r is a little above a power of two m, "upsampled"
    transforms the first m columns alone, and gives the other r independent signs for every feature: where m is at least
    16, r at most 8, and :math:`(r + 2) D < 2m \log_2 2m - m \log_2 m`, so that r multiplications and a pass over memory
    for every feature cost less than a transform of half the size saves. Other parameters are those of every
    :class:`FeatureMap`.

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
    extra_signs: Tensor

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
        self.order = _order(self.input_dim, self.num_features, self.variant)
        self._register_weights(generator, dtype)

    def extra_repr(self) -> str:
        order = f", order={self.order}" if self.num_extra else ""
        return f"{super().extra_repr()}, variant={self.variant!r}{order}"

    @property
    def num_extra(self) -> int:
        """The number of last columns that are not transformed."""
        return max(self.input_dim - self.order, 0)

    @property
    def num_blocks(self) -> int:
        """The number of independent sign vectors per degree."""
        return 1 if self.variant == "upsampled" else -(-self.num_features // self.order)

    def _draw(self, generator: Generator | None) -> dict[str, Tensor]:
        signs = self._signs((self.degree, self.num_blocks, self.order), generator)
        draw = sampling.shuffled_copies if self.variant == "upsampled" else sampling.stacked_permutations
        index = [draw(self.order, self.num_features, generator) for _ in range(self.degree)]
        weights = {"signs": signs, "index": torch.stack(index)}
        if self.num_extra:
            weights["extra_signs"] = self._signs((self.degree, self.num_features, self.num_extra), generator)
        return weights

    @property
    def _width(self) -> int:
        return max(self.num_features, self.num_blocks * self.order)

    def _signs(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        """Random signs with real and imaginary parts along dimension 1."""
        if self.is_complex:
            return torch.stack(sampling.fourth_roots(shape, generator), dim=1)
        return sampling.rademacher(shape, generator).unsqueeze(1)

    def _factor(self, i: int, x: Tensor, out: Tensor | None = None) -> Tensor:
        padding = self.order - self.input_dim
        first = torch.nn.functional.pad(x, (0, 0, 0, padding)) if padding > 0 else x[: self.order]
        transformed = fwht(self.signs[i].unsqueeze(-1) * first, dim=-2).flatten(1, 2)
        if not self.is_complex:
            return self._projected(i, 0, transformed, x, out)
        if self.num_extra or self.num_features < transformed.shape[1]:
            return torch.complex(*[self._projected(i, part, transformed, x) for part in range(2)], out=out)
        return torch.index_select(torch.complex(transformed[0], transformed[1]), 0, self.index[i], out=out)

    def _projected(self, i: int, part: int, transformed: Tensor, x: Tensor, out: Tensor | None = None) -> Tensor:
        """The rows that P picks of a real or imaginary part, with the columns beside the transform added."""
        picked = torch.index_select(transformed[part], 0, self.index[i], out=out)
        if not self.num_extra:
            return picked
        return torch.addmm(picked, self.extra_signs[i, part], x[self.order :], out=out)

    def moments(self, x: Tensor, y: Tensor, **hyperparameters: Tensor) -> EstimateVariance:
        r"""Variance and pseudo-variance of the kernel estimate, T Table 4.1 with single-feature values inside C.

        .. math:: V = \frac{V^{(p)}}{D} - \frac{c}{D^2} \Big[(x^\top y)^{2p} - \Big((x^\top y)^2 -
            \frac{V^{(1)}}{m - 1}\Big)^p\Big]

        with the Rademacher values :math:`V^{(p)}` of one feature; c counts the ordered pairs of columns that share
        their signs. Stacked: m = d padded, c = floor(D/d) d (d - 1) + r (r - 1) with r = D mod d. Upsampled:
        m = ceil(D/d) d, c = D (D - 1). The pseudo-variance has pseudo-variances in place of variances. d = 1 is exact.
        Where columns are left out of the transform, d and :math:`V^{(1)}` are those of the transformed ones.
        """
        self._check_pair(x, y)
        pool, pairs = self._pool_and_pairs()
        single = single_feature_moments(x, y, self.degree, "rademacher", self.is_complex)
        if pool == 1:
            return EstimateVariance(torch.zeros_like(single.variance), torch.zeros_like(single.variance))
        first = x[..., : self.order], y[..., : self.order]
        linear = single_feature_moments(*first, 1, "rademacher", self.is_complex)
        inner, width = (x @ y.mT) ** 2, self.num_features

        def structured(one: Tensor, one_linear: Tensor) -> Tensor:
            covariance = (inner - one_linear / (pool - 1)) ** self.degree - inner**self.degree
            return one / width + (pairs / width**2) * covariance

        return EstimateVariance(
            structured(single.variance, linear.variance), structured(single.pseudo_variance, linear.pseudo_variance)
        )

    def _pool_and_pairs(self) -> tuple[int, int]:
        """The number of rows that indices are drawn from, and of ordered pairs of columns that share their signs."""
        width, dim = self.num_features, self.order
        if self.variant == "upsampled":
            return -(-width // dim) * dim, width * (width - 1)
        full, rest = divmod(width, dim)
        return dim, full * dim * (dim - 1) + rest * (rest - 1)

    @property
    def operations(self) -> float:
        """p (d log d) for every block of signs, p D for every column beside the transform, and p D for the product."""
        linear = self.num_blocks * _operations(self.order) + self.num_extra * self.num_features
        parts, product = (2, 4) if self.is_complex else (1, 1)
        return self.degree * (parts * linear + product * self.num_features)

    @classmethod
    def examples(cls) -> list[Self]:
        return [
            cls(input_dim, num_features, degree, variant, is_complex, generator=torch.Generator().manual_seed(degree))
            for input_dim, num_features, degree in [(4, 8, 1), (3, 3, 2), (4, 4, 3), (5, 12, 2), (17, 20, 2), (1, 4, 3)]
            for variant in ("upsampled", "stacked")
            for is_complex in (False, True)
        ]


def _order(input_dim: int, num_features: int, variant: str) -> int:
    """The order of the Hadamard matrix: the next power of two, or the one before where few columns are beyond it.

    Stacked transforms of half the size are about twice as many where features are, so that they save little.
    """
    padded = next_power_of_two(input_dim)
    smaller, extra = padded // 2, input_dim - padded // 2
    if variant != "upsampled" or smaller < _SMALLEST_ORDER or extra > _MOST_EXTRA:
        return padded
    return smaller if (extra + 2) * num_features < _operations(padded) - _operations(smaller) else padded


def _operations(order: int) -> float:
    """Multiplications of one transform."""
    return order * max(1.0, math.log2(order))
