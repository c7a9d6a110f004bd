"""Covariance matrices of batches of inputs, with gradients of Gaussian and Matern kernels in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from ..kernels import InputTransformKernel
from ..linalg import accurate_dtype, cholesky

Profile = Callable[[Tensor], tuple[Tensor, Tensor]]
r"""A kernel as a function of squared scaled distances, :math:`f(\sum_k \tau_k^2 / \ell_k^2)`, and its slope -2 f', by
which :math:`\partial k / \partial \log \ell_k` is the slope times :math:`\tau_k^2 / \ell_k^2`."""


def _gaussian(squared: Tensor) -> tuple[Tensor, Tensor]:
    value = torch.exp(-0.5 * squared)
    return value, value


def _one_half(squared: Tensor) -> tuple[Tensor, Tensor]:
    distance = squared.sqrt()
    value = torch.exp(-distance)
    return value, (value / distance).masked_fill_(distance == 0, 0.0)


def _three_halves(squared: Tensor) -> tuple[Tensor, Tensor]:
    distance = (3.0 * squared).sqrt_()
    decay = torch.exp(-distance)
    return distance.add_(1.0).mul_(decay), decay.mul_(3.0)


def _five_halves(squared: Tensor) -> tuple[Tensor, Tensor]:
    distance = (5.0 * squared).sqrt_()
    decay = torch.exp(-distance)
    slope = (1.0 + distance).mul_(decay)
    return torch.addcmul(slope, squared, decay, value=5.0 / 3.0), slope.mul_(5.0 / 3.0)


_MATERN: dict[float, Profile] = {0.5: _one_half, 1.5: _three_halves, 2.5: _five_halves}

_LARGE = 1e6
"""Squared norms from which on squared distances by products are wrong by more than about 1e-9."""


def covariance(kernel: Kernel, x: Tensor) -> Tensor:
    """The dense covariance (..., n T, n T) of an exact kernel at inputs (..., n, d), differentiable, in float64."""
    if isinstance(kernel, ScaleKernel) and not kernel.batch_shape:
        return kernel.outputscale.double() * covariance(kernel.base_kernel, x)
    columns = x if kernel.active_dims is None else x.index_select(-1, kernel.active_dims)
    if isinstance(kernel, InputTransformKernel):
        return covariance(kernel.base_kernel, kernel.coordinates(columns))
    profile = _profile(kernel)
    if profile is None:
        dense: Tensor = kernel(x).to_dense()
        return dense.to(accurate_dtype(dense.dtype))
    centered = columns.double() - columns.double().mean(-2, keepdim=True)
    matrix: Tensor = _Stationary.apply(centered, kernel.lengthscale.double(), profile)
    return matrix


def _profile(kernel: Kernel) -> Profile | None:
    if kernel.batch_shape:
        return None
    if type(kernel) is RBFKernel:
        return _gaussian
    return _MATERN[kernel.nu] if type(kernel) is MaternKernel else None


def _squared_distances(x: Tensor) -> Tensor:
    """Squared distances (..., n, n) of rows (..., n, d): by differences where products would lose their digits."""
    squares = x.square().sum(-1)
    if float(squares.max()) > _LARGE:
        return torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square_()
    rows = x.reshape(-1, *x.shape[-2:])
    squared = torch.baddbmm(squares.reshape(-1, 1, x.shape[-2]), rows, rows.mT, alpha=-2.0)
    return squared.reshape(*x.shape[:-1], x.shape[-2]).add_(squares.unsqueeze(-1)).clamp_(min=0.0)


class _Stationary(torch.autograd.Function):
    r"""A stationary kernel of inputs (..., n, d) and lengthscales (1, d) or (1, 1).

    .. math:: \sum_{ij} W_{ij} \tau_{ijk}^2 = 2 \sum_i u_{ik}^2 \sum_j W_{ij} - 2 \sum_{ij} u_{ik} W_{ij} u_{jk}

    Gradients of the matrix are taken to be symmetric.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, lengthscale: Tensor, profile: Profile) -> Tensor:
        scaled = x / lengthscale
        squared = _squared_distances(scaled)
        squared.diagonal(dim1=-2, dim2=-1).zero_()
        value, slope = profile(squared)
        ctx.save_for_backward(scaled, slope, lengthscale)
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, None]:
        scaled, slope, lengthscale = ctx.saved_tensors
        weights = gradients[0] * slope
        by_row = weights.sum(-1, keepdim=True) * scaled - weights @ scaled
        of_inputs = -2.0 * by_row / lengthscale if ctx.needs_input_grad[0] else None
        by_column = (2.0 * scaled * by_row).reshape(-1, scaled.shape[-1]).sum(0)
        shaped = by_column if lengthscale.shape[-1] > 1 else by_column.sum().reshape(1)
        return of_inputs, shaped.reshape(lengthscale.shape) / lengthscale, None


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
