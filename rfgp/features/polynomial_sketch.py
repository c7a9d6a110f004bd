"""What sketches of polynomial kernels share."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from .._support import checks
from .._support.torch_names import has_values
from .base import FeatureMap

_MAX_DEGREE = 20


class PolynomialSketch(FeatureMap):
    r"""A sketch of the homogeneous polynomial kernel :math:`k(x, y) = (x^\top y)^p` as a product of p linear maps.

    .. math:: \phi(x)_\ell = \prod_{i=1}^p (W_i x)_\ell / \sqrt D

    For inhomogeneous kernels append the square root of the offset to the inputs as one more column.

    >>> from rfgp.features import TensorSketch
    >>> isinstance(TensorSketch(3, 64, degree=2), PolynomialSketch)
    True
    """

    has_unbiased_columns = True
    block_bytes: ClassVar[int] = 2 * 2**20
    """The size of a block of rows of features: what suits the cache."""

    def __init__(self, input_dim: int, num_features: int, degree: int, is_complex: bool = False) -> None:
        super().__init__(input_dim, num_features, is_complex)
        self.degree = checks.positive_integer("degree", degree, largest=_MAX_DEGREE)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, degree={self.degree}"

    def target(self, x: Tensor, y: Tensor, **hyperparameters: Tensor) -> Tensor:
        return (self._check(x) @ self._check(y, "y").mT) ** self.degree

    def forward_pair(self, x: Tensor, y: Tensor) -> Tensor:
        r"""Compact bilinear pooling: features (..., N, D) of :math:`x \otimes y`, for degree 2 (Gao et al., 2016).

        .. math:: E[\phi(x, y) \phi(x', y')^H] = (x^\top x') (y^\top y')
        """
        return self.forward_tensor(x, y)

    def forward_tensor(self, *factors: Tensor) -> Tensor:
        r"""Features (..., N, D) of the tensor product :math:`x_1 \otimes \dots \otimes x_p` of inputs (..., N, d)."""
        if len(factors) != self.degree:
            raise ValueError(
                f"expected {self.degree} inputs, one per degree of the sketch, got {len(factors)}; "
                f"make a sketch of degree {len(factors)}"
            )
        for x in factors:
            self._check(x)
        if len({x.shape for x in factors}) > 1:
            raise ValueError(
                f"expected inputs of one shape, got {[tuple(x.shape) for x in factors]}; pair them row by row"
            )
        rows = self.rows(*factors)
        return torch.complex(*rows.chunk(2, dim=-1)) if self.is_complex else rows

    def rows(self, *factors: Tensor, **hyperparameters: Tensor) -> Tensor:
        batch, num_rows = factors[0].shape[:-2], factors[0].shape[-2]
        flat = [x.reshape(-1, self.input_dim) for x in factors]
        rows = blocked(self._columns, flat, self.num_features, self.is_complex, self.block_bytes, self._width)
        return rows.reshape(*batch, num_rows, rows.shape[-1])

    def _columns(self, *factors: Tensor, work: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Feature-major product of p factors, (d, n) each (or one for all), to (D, n); ``work`` may be overwritten."""
        inputs = factors if len(factors) == self.degree else factors * self.degree
        first, other = (None, None) if work is None else work
        result = self._factor(0, inputs[0] * self._scale, first)
        for i in range(1, self.degree):
            factor = self._factor(i, inputs[i], other)
            result = result * factor if work is None else result.mul_(factor)
        return self._finish(result)

    @abc.abstractmethod
    def _factor(self, i: int, x: Tensor, out: Tensor | None = None) -> Tensor:
        """The i-th linear map of feature-major inputs, (d, n) to (D, n); it may be written to ``out``."""

    @property
    def _width(self) -> int:
        """The most numbers that a linear map has for one input, which decide how many inputs suit the cache."""
        return self.num_features

    @property
    def _scale(self) -> float:
        """The factor 1/sqrt(D) of the features, applied to the inputs of the first linear map."""
        return 1.0 / math.sqrt(self.num_features)

    def _finish(self, product: Tensor) -> Tensor:
        """What remains to be done with the product of the factors."""
        return product


def blocked(
    columns: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    num_features: int,
    is_complex: bool,
    block_bytes: int,
    width: int,
) -> Tensor:
    """Evaluate a feature-major function on inputs (N, d), in blocks of rows that stay in the cache.

    :param columns: takes (d, n) tensors and working memory, and returns (D, n) features.
    :param width: the most numbers that the function has for one row at a time.
    :returns: (N, D), or (N, 2 D) with real and imaginary parts side by side.
    """
    if not has_values() or (torch.is_grad_enabled() and any(x.requires_grad for x in inputs)):
        result = columns(*[x.mT for x in inputs])
        return torch.cat([result.real, result.imag]).mT if is_complex else result.mT
    num_rows = inputs[0].shape[0]
    parts = 2 if is_complex else 1
    rows = inputs[0].new_empty(num_rows, parts * num_features)
    block_rows = min(max(block_bytes // (parts * width * rows.element_size()), 32), block_bytes // 8192)
    dtype = rows.dtype.to_complex() if is_complex else rows.dtype
    memory = torch.empty(2, num_features, min(block_rows, num_rows), dtype=dtype, device=rows.device)
    for start in range(0, num_rows, block_rows):
        stop = min(start + block_rows, num_rows)
        work = memory if stop - start == memory.shape[-1] else torch.empty_like(memory[..., : stop - start])
        block = columns(*[x[start:stop].mT.contiguous() for x in inputs], work=(work[0], work[1]))
        if is_complex:
            rows[start:stop, :num_features] = block.real.mT
            rows[start:stop, num_features:] = block.imag.mT
        else:
            rows[start:stop] = block.mT
    return rows
