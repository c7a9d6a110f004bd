"""Products of lazy kernel matrices, and sums over a batch of them, by the features of one kernel."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel
from gpytorch.lazy import LazyEvaluatedKernelTensor
from torch import Tensor

from ...kernels.input_transform import InputTransformKernel
from ..family import family
from ..feature_kernel import with_features
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
    """The sum over the one batch dimension of lazy matrices as that of an AdditiveKernel; None where it has none."""
    kernel, count = matrix.kernel, matrix.shape[0]
    if matrix.dim() != 3 or dim not in (0, -3) or not contains_features(kernel) or not _has_factor_features(kernel):
        return None
    width = matrix.x1.shape[-1]
    terms = [
        InputTransformKernel(
            kernel[place] if kernel.batch_shape else kernel, _Columns(place * width, (place + 1) * width)
        )
        for place in range(count)
    ]
    x1, x2 = (torch.cat(x.expand(count, *x.shape[-2:]).unbind(0), dim=-1) for x in (matrix.x1, matrix.x2))
    return LazyEvaluatedKernelTensor(x1, x2, kernel=with_features(AdditiveKernel(*terms)))


def _has_factor_features(kernel: Kernel) -> bool:
    """Whether a kernel has features of one output, from inputs as they are."""
    of_kernel = family(kernel)
    return kernel.active_dims is None and of_kernel.has_features and not of_kernel.has_output_factor


def _beside(left: Tensor, right: Tensor) -> Tensor:
    """Two inputs as columns of one; a single row, or batch, stands for all of the other one."""
    rows = torch.broadcast_shapes(left.shape[:-1], right.shape[:-1])
    return torch.cat([part.expand(*rows, part.shape[-1]) for part in (left, right)], dim=-1)
