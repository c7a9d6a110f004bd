"""Covariances of the value and the first derivatives of functions."""

from __future__ import annotations

from functools import reduce

import torch
from gpytorch.kernels import AdditiveKernel, ConstantKernel, Kernel, ProductKernel, ScaleKernel
from linear_operator import to_dense
from torch import Tensor

from ..operators import Gradient, Value
from .observed import LinearlyObservedKernel


def jets(kernel: Kernel, x: Tensor, y: Tensor) -> Tensor:
    """The covariances of f and its first derivatives at two sets of points, (..., 1 + d, 1 + d, N, M).

    :param kernel: an RBFKernel, MaternKernel or ConstantKernel, or scales, sums and products of these.
    :raises ValueError: for a kernel whose derivatives are not known, or do not exist.
    """
    dims = kernel.active_dims
    if dims is None:
        return _jets(kernel, x, y)
    chosen = torch.cat([dims.new_zeros(1), dims + 1])
    inner = _jets(kernel, x.index_select(-1, dims), y.index_select(-1, dims))
    rows = inner.new_zeros(*inner.shape[:-4], 1 + x.shape[-1], *inner.shape[-3:]).index_copy(-4, chosen, inner)
    result = rows.new_zeros(*rows.shape[:-3], 1 + x.shape[-1], *rows.shape[-2:])
    return result.index_copy(-3, chosen, rows)


def _jets(kernel: Kernel, x: Tensor, y: Tensor) -> Tensor:
    """The same at inputs that ``active_dims`` have selected."""
    if isinstance(kernel, ScaleKernel):
        return kernel.outputscale[..., None, None, None, None] * _jets(kernel.base_kernel, x, y)
    if isinstance(kernel, AdditiveKernel):
        return reduce(torch.add, [jets(part, x, y) for part in kernel.kernels])
    if isinstance(kernel, ProductKernel):
        return reduce(_product, [jets(part, x, y) for part in kernel.kernels])
    if isinstance(kernel, ConstantKernel):
        return torch.nn.functional.pad(
            to_dense(kernel.forward(x, y))[..., None, None, :, :], (0, 0, 0, 0, 0, x.shape[-1], 0, x.shape[-1])
        )
    observed = LinearlyObservedKernel(kernel, [Value(), Gradient()])
    values, outputs = to_dense(observed.forward(x, y)), 1 + x.shape[-1]
    values = values.unflatten(-1, (y.shape[-2], outputs)).unflatten(-3, (x.shape[-2], outputs))
    return values.movedim((-3, -1), (-4, -3))


def _product(left: Tensor, right: Tensor) -> Tensor:
    """The product rule; every term that has a factor without derivatives comes up once for each side of the sum."""
    half = left.new_ones(left.shape[-4])
    half[0] = 0.5
    total = left * right[..., :1, :1, :, :] + left[..., :1, :1, :, :] * right
    total = total + left[..., :1, :, :] * right[..., :1, :, :, :] + left[..., :1, :, :, :] * right[..., :1, :, :]
    return total * half[:, None, None, None] * half[:, None, None]
