"""TensorSketch: the count sketch of a tensor product, by convolution."""

from __future__ import annotations

import math
from typing import Self

import torch
from torch import Generator, Tensor

from ..linalg import sampling
from .polynomial_sketch import PolynomialSketch
from .sketch_registry import register_sketch


@register_sketch("tensor_sketch", default_form="real")
class TensorSketch(PolynomialSketch):
    r"""Count sketch of :math:`x^{\otimes p}`, the circular convolution of p count sketches of x.

    .. math:: \phi(x) = \mathrm{DFT}^{-1}\Big[\bigodot_{i=1}^p \mathrm{DFT}[C_i x]\Big], \qquad
        (C_i x)_k = \sum_{j: h_i(j) = k} s_i(j) x_j

    in O(p (d + D log D)) per input; ``moments`` is None. Other parameters are those of every :class:`FeatureMap`.

    :param degree: the degree p of the kernel, 1 to 20.
    :raises ValueError: for a degree or width that does not exist.

    Source: T 2.2.2, Eq. 2.19 (Pham and Pagh, 2013); T 4.3.1, footnote 4 for the complex form.

    >>> sketch = TensorSketch(3, 100, degree=2, generator=torch.Generator().manual_seed(0))
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
        is_complex: bool = False,
        *,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(input_dim, num_features, degree, is_complex)
        self._register_weights(generator, dtype)

    def _draw(self, generator: Generator | None) -> dict[str, Tensor]:
        shape = (self.degree, self.input_dim)
        if self.is_complex:
            signs = torch.stack(sampling.fourth_roots(shape, generator), dim=1)
        else:
            signs = sampling.rademacher(shape, generator).unsqueeze(1)
        index = torch.randint(0, self.num_features, shape, generator=generator, device="cpu")
        return {"signs": signs, "index": index}

    _scale = 1.0

    def _factor(self, i: int, x: Tensor, out: Tensor | None = None) -> Tensor:
        signed = self.signs[i].unsqueeze(-1) * x
        sketch = x.new_zeros(len(signed), self.num_features, x.shape[-1]).index_add(1, self.index[i], signed).mT
        if self.is_complex:
            return torch.fft.fft(torch.complex(sketch[0], sketch[1])).mT
        return torch.fft.rfft(sketch[0]).mT

    def _finish(self, product: Tensor) -> Tensor:
        if self.is_complex:
            return torch.fft.ifft(product.mT).mT
        return torch.fft.irfft(product.mT, n=self.num_features).mT

    def variance_bound(self, x: Tensor, y: Tensor) -> Tensor:
        r"""Upper bound :math:`(2 + 3^p) \|x\|^{2p} \|y\|^{2p} / D` on the real sketch's variance, T Theorem 2.2.1."""
        norms = (self._check(x) ** 2).sum(-1)[..., :, None] * (self._check(y, "y") ** 2).sum(-1)[..., None, :]
        return (2.0 + 3.0**self.degree) / self.num_features * norms**self.degree

    @property
    def operations(self) -> float:
        """p (d + D log D), for the count sketches and their Fourier transforms."""
        transform = 2.0 * self.num_features * max(1.0, math.log2(self.num_features))
        return (self.degree + 1) * (self.input_dim + transform) * (2 if self.is_complex else 1)

    @classmethod
    def examples(cls) -> list[Self]:
        return [
            cls(input_dim, num_features, degree, is_complex, generator=torch.Generator().manual_seed(degree))
            for input_dim, num_features, degree in [(5, 8, 1), (5, 9, 2), (3, 8, 3), (4, 6, 4)]
            for is_complex in (False, True)
        ]
