"""Products of lazy kernel matrices, and sums over a batch of them, by the features of one kernel."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel, ProductKernel
from gpytorch.lazy import LazyEvaluatedKernelTensor
from linear_operator import to_dense
from torch import Tensor

from ...inference.posterior.covariance import ResidualCovariance
from ...kernels.input_transform import InputTransformKernel
from ..family import Family, approximates, family
from ..feature_kernel import with_features
from ..request import Request
from .compositions import contains_features


class _Columns(torch.nn.Module):
    """Those of the inputs that one of two kernels sees."""

    def __init__(self, start: int, stop: int) -> None:
        super().__init__()
        self.start, self.stop = start, stop

    def forward(self, x: Tensor) -> Tensor:
        return x[..., self.start : self.stop]


def matrix_product(left: LazyEvaluatedKernelTensor, right: Any) -> LazyEvaluatedKernelTensor | None:
    """The product, element by element, of two lazy matrices as that of a product of kernels; None where it has none.

    One of the kernels has random features or landmarks, and the other one is exact and has features, such as an
    IndexKernel.
    """
    if not isinstance(right, LazyEvaluatedKernelTensor):
        return None
    kernels = (left.kernel, right.kernel)
    if sum(map(contains_features, kernels)) != 1 or not all(map(_has_factor_features, kernels)):
        return None
    split, end = left.x1.shape[-1], left.x1.shape[-1] + right.x1.shape[-1]
    factors = [
        InputTransformKernel(kernel, _Columns(*columns))
        for kernel, columns in zip(kernels, ((0, split), (split, end)), strict=True)
    ]
    x1, x2 = (_beside(*pair) for pair in ((left.x1, right.x1), (left.x2, right.x2)))
    return LazyEvaluatedKernelTensor(x1, x2, kernel=with_features(ProductKernel(*factors)))


def batch_sum(matrix: LazyEvaluatedKernelTensor, dim: int) -> LazyEvaluatedKernelTensor | None:
    """The sum over the one batch dimension of lazy matrices as that of a kernel; None where it has no features."""
    kernel, count = matrix.kernel, matrix.shape[0]
    if matrix.dim() != 3 or dim not in (0, -3) or not contains_features(kernel) or not _has_factor_features(kernel):
        return None
    x1, x2 = (x.expand(count, *x.shape[-2:]).movedim(0, -2).flatten(-2) for x in (matrix.x1, matrix.x2))
    return LazyEvaluatedKernelTensor(x1, x2, kernel=with_features(_BatchSumKernel(kernel, count)))


class _BatchSumKernel(Kernel):
    r"""The sum of a batch of B kernels of one output, :math:`k(x, y) = \sum_b k_b(x_b, y_b)`.

    :param base_kernel: the batch, or one kernel that stands for all B.
    :param count: B. Inputs (..., N, B d) have those of all kernels side by side.
    """

    def __init__(self, base_kernel: Kernel, count: int) -> None:
        super().__init__()
        self.base_kernel, self.count = base_kernel, count

    @property
    def batch_shape(self) -> torch.Size:
        """None: the batch is summed over."""
        return torch.Size()

    def apart(self, x: Tensor) -> Tensor:
        """The inputs of each kernel, (..., B, N, d)."""
        return x.unflatten(-1, (self.count, -1)).movedim(-2, -3)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        total: Tensor = to_dense(self.base_kernel(self.apart(x1), self.apart(x2), diag=diag, **params))
        return total.sum(-2 if diag else -3)


@approximates(_BatchSumKernel)
class _BatchSumFamily(Family):
    """Features of all kernels of a batch side by side; the kernels keep their parameters, so that these are learned."""

    kernel: _BatchSumKernel

    @property
    def _base(self) -> Family:
        return family(self.kernel.base_kernel, self.maps)

    @property
    def parts(self) -> list[Family]:
        return [self._base]

    def draw(self, request: Request) -> torch.nn.Module:
        return self._base.draw(request)

    @property
    def has_features(self) -> bool:
        return self._base.has_features

    def exact_maps(self) -> torch.nn.Module:
        return self._base.exact_maps()

    @property
    def num_scalar_features(self) -> int:
        return self.kernel.count * self._base.num_scalar_features

    def active_features(self, x: Tensor) -> Tensor:
        return self._base.all_features(self.kernel.apart(x)).movedim(-3, -2).flatten(-2)

    @property
    def has_residual_covariance(self) -> bool:
        return self._base.has_residual_covariance

    def active_residual(self, x: Tensor) -> ResidualCovariance | None:
        variance = self._base.residual_variance(self.kernel.apart(x))
        return None if variance is None else ResidualCovariance.of_variance(variance.sum(-2))


def _has_factor_features(kernel: Kernel) -> bool:
    """Whether a kernel has features of one output, from inputs as they are."""
    of_kernel = family(kernel)
    return kernel.active_dims is None and of_kernel.has_features and not of_kernel.has_output_factor


def _beside(left: Tensor, right: Tensor) -> Tensor:
    """Two inputs as columns of one; a single row, or batch, stands for all of the other one."""
    rows = torch.broadcast_shapes(left.shape[:-1], right.shape[:-1])
    return torch.cat([part.expand(*rows, part.shape[-1]) for part in (left, right)], dim=-1)
