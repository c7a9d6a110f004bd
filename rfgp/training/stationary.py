"""Covariance matrices of batches of inputs, with gradients of stationary kernels in closed form."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel
from torch import Tensor

from ..kernels import InputTransformKernel
from ..linalg import accurate_dtype, cholesky
from ..linalg.stationary import Profile, stationary_matrix

_MATERN = {0.5: Profile.MATERN_1_2, 1.5: Profile.MATERN_3_2, 2.5: Profile.MATERN_5_2}


class StationaryParts(NamedTuple):
    """A kernel of inputs as a scale () times a profile of scaled inputs (..., n, q), in float64."""

    scale: Tensor
    points: Tensor
    alpha: Tensor
    profile: Profile


def stationary_parts(kernel: Kernel, x: Tensor) -> StationaryParts | None:
    """Those of a Gaussian, Matern or rational quadratic kernel, scaled or of transformed inputs; None for others."""
    columns = x if kernel.active_dims is None else x.index_select(-1, kernel.active_dims)
    scale = alpha = x.new_ones((), dtype=torch.float64)
    while isinstance(kernel, ScaleKernel) and not kernel.batch_shape:
        scale, kernel = kernel.outputscale.double() * scale, kernel.base_kernel
    if kernel.batch_shape:
        return None
    if isinstance(kernel, InputTransformKernel):
        parts = stationary_parts(kernel.base_kernel, kernel.coordinates(columns))
        return None if parts is None else parts._replace(scale=scale * parts.scale)
    if type(kernel) is RBFKernel:
        profile = Profile.GAUSSIAN
    elif type(kernel) is MaternKernel:
        profile = _MATERN[kernel.nu]
    elif type(kernel) is RQKernel:
        profile, alpha = Profile.RATIONAL_QUADRATIC, kernel.alpha.double().reshape(())
    else:
        return None
    return StationaryParts(scale, columns.double() / kernel.lengthscale.double(), alpha, profile)


def covariance(kernel: Kernel, x: Tensor) -> Tensor:
    """The dense covariance (..., n T, n T) of an exact kernel at inputs (..., n, d), differentiable, in float64."""
    parts = stationary_parts(kernel, x)
    if parts is None:
        dense: Tensor = kernel(x).to_dense()
        return dense.to(accurate_dtype(dense.dtype))
    centered = parts.points - parts.points.mean(-2, keepdim=True)
    return parts.scale * stationary_matrix(centered, parts.profile, parts.alpha)


class GaussianLogDensity(torch.autograd.Function):
    r"""The log densities (...) of residuals r (..., n) under N(0, K + diag(s)); Rasmussen and Williams, Eq. 5.8.

    .. math:: -\tfrac12 \big(r^\top A^{-1} r + \log|A| + n \log 2 \pi\big), \qquad
        \frac{\partial}{\partial A} = \tfrac12 (\alpha \alpha^\top - A^{-1}), \quad \alpha = A^{-1} r
    """

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, variances: Tensor, residual: Tensor) -> Tensor:
        total = matrix.clone(memory_format=torch.contiguous_format)
        total.diagonal(dim1=-2, dim2=-1).add_(variances)
        factor = cholesky(total)
        alpha = torch.cholesky_solve(residual.unsqueeze(-1), factor)
        ctx.save_for_backward(alpha, factor)
        ctx.shape = variances.shape
        log_det = 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        quadratic = (residual * alpha.squeeze(-1)).sum(-1)
        return -0.5 * (quadratic + log_det + residual.shape[-1] * math.log(2.0 * math.pi))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        alpha, factor = ctx.saved_tensors
        half = 0.5 * gradients[0][..., None, None]
        slope = (half * alpha) @ alpha.mT
        slope.addcmul_(torch.cholesky_inverse(factor), -half)
        by_row = slope.diagonal(dim1=-2, dim2=-1).sum_to_size(ctx.shape)
        return slope, by_row, -gradients[0].unsqueeze(-1) * alpha.squeeze(-1)
