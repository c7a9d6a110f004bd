"""Values of Gaussian and Matern kernels in place: a matrix product and few passes over a block that stays in cache."""

from __future__ import annotations

import math
from typing import Self

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor


class StationaryValues:
    r"""A scaled Gaussian or Matern kernel as a function of distances of scaled inputs.

    .. math:: k(x, y) = a\, \kappa(\|z(x) - z(y)\|), \qquad z(x) = \sqrt{2 \nu}\, (x - c) / \ell
    """

    def __init__(self, smoothness: float, lengthscale: Tensor, outputscale: float, center: Tensor) -> None:
        root = 1.0 if math.isinf(smoothness) else math.sqrt(2.0 * smoothness)
        self._smoothness, self._scale, self._outputscale = smoothness, root / lengthscale, outputscale
        self._center = center
        self._buffers: list[Tensor] = [center.new_empty(0), center.new_empty(0)]

    @classmethod
    def of(cls, kernel: Kernel, x: Tensor) -> Self | None:
        """The values of a kernel in float64, or None for other kernels."""
        outputscale = 1.0
        while type(kernel) is ScaleKernel:
            outputscale, kernel = outputscale * float(kernel.outputscale.detach()), kernel.base_kernel
        if type(kernel) not in (RBFKernel, MaternKernel):
            return None
        smoothness = kernel.nu if isinstance(kernel, MaternKernel) else math.inf
        return cls(smoothness, kernel.lengthscale.detach(), outputscale, x.mean(0))

    def roundings(self, rows: Tensor) -> Tensor:
        r"""How many :math:`\epsilon` of the variance a value is off, as a sum of numbers of its scaled inputs, (N,)."""
        dims = float(self._center.numel())
        of_squares, others = (2.0, dims + 32.0) if self._smoothness == 0.5 else (1.5 * dims + 8.0, 32.0)
        return of_squares * rows.square().sum(-1) + 0.5 * others

    def prepared(self, x: Tensor) -> Tensor:
        """The scaled inputs z, (N, d)."""
        return (x - self._center) * self._scale

    def between(self, left: Tensor, right: Tensor) -> Tensor:
        """The kernel between scaled inputs (N, d) and (M, d), in memory that the next call overwrites."""
        if self._smoothness == 0.5:
            distances = torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist")
            return distances.neg_().exp_().mul_(self._outputscale)
        values, other = (self._buffer(i, len(left), len(right)) for i in range(2))
        factor = -0.5 if math.isinf(self._smoothness) else 1.0
        ones = left.new_ones(max(len(left), len(right)), 1)
        first = torch.cat([-2.0 * factor * left, factor * left.square().sum(-1, keepdim=True), ones[: len(left)]], -1)
        second = torch.cat([right, ones[: len(right)], factor * right.square().sum(-1, keepdim=True)], -1)
        torch.mm(first, second.mT, out=values)
        if math.isinf(self._smoothness):
            return values.clamp_max_(0.0).exp_().mul_(self._outputscale)
        values.clamp_min_(0.0).sqrt_()
        torch.neg(values, out=other).exp_()
        if self._outputscale != 1.0:
            other.mul_(self._outputscale)
        if self._smoothness == 1.5:
            return other.addcmul_(values, other)
        return values.addcmul_(values, values, value=1.0 / 3.0).add_(1.0).mul_(other)

    def _buffer(self, index: int, rows: int, columns: int) -> Tensor:
        if self._buffers[index].numel() < rows * columns:
            self._buffers[index] = self._center.new_empty(rows * columns)
        return self._buffers[index][: rows * columns].view(rows, columns)
