"""Rows predicted from others by one Cholesky factor: errors, variances and log densities, with gradients."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .cholesky_factor import cholesky

_FREEDOM = 4.0
_STUDENT = math.lgamma(0.5 * (_FREEDOM + 1.0)) - math.lgamma(0.5 * _FREEDOM) - 0.5 * math.log(math.pi * _FREEDOM)


def prediction_errors(matrix: Tensor, residual: Tensor, targets: int = 1) -> tuple[Tensor, Tensor]:
    r"""The errors of the last t of n residuals (..., n), each predicted from all before it, and their variances.

    .. math:: \epsilon_i = L_{ii} z_i, \qquad v_i = L_{ii}^2, \qquad A = L L^\top, \quad z = L^{-1} r

    :param matrix: the covariance A of noisy observations, (..., n, n).
    :param targets: t.
    :returns: errors and variances, (..., t) each.
    """
    error, variance = _PredictionErrors.apply(matrix, residual, targets)
    return error, variance


class _PredictionErrors(torch.autograd.Function):
    r"""With :math:`w_i = L^{-\top} e_i` and :math:`\alpha_{<i} = L^{-\top} (z_1, \dots, z_{i-1}, 0, \dots)` gradients
    have rank 2 t: :math:`d\epsilon_i = L_{ii} w_i^\top (dr - dA\, \alpha_{<i})`, :math:`dv_i = v_i w_i^\top dA\, w_i`.
    """

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, residual: Tensor, targets: int) -> tuple[Tensor, Tensor]:
        factor = cholesky(matrix)
        white = torch.linalg.solve_triangular(factor, residual.unsqueeze(-1), upper=False)
        ctx.save_for_backward(factor, white)
        ctx.targets = targets
        roots = factor.diagonal(dim1=-2, dim2=-1)[..., -targets:]
        return white[..., -targets:, 0] * roots, roots.square()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_error: Tensor, of_variance: Tensor) -> tuple[Tensor, Tensor, None]:
        factor, white = ctx.saved_tensors
        given = factor.shape[-1] - ctx.targets
        roots = factor.diagonal(dim1=-2, dim2=-1)[..., given:].unsqueeze(-2)
        right = white.new_zeros(*white.shape[:-1], 1 + ctx.targets)
        right[..., :given, 0] = white[..., :given, 0]
        right[..., given:, 1:].diagonal(dim1=-2, dim2=-1).fill_(1.0)
        solved = torch.linalg.solve_triangular(factor.mT, right, upper=True)
        before, units = solved[..., :1], solved[..., 1:]
        if ctx.targets > 1:
            steps = units * white[..., given:, 0].unsqueeze(-2)
            before = before + steps.cumsum(-1) - steps
        by_residual = of_error.unsqueeze(-2) * roots
        others = (of_variance.unsqueeze(-2) * roots.square()) * units - by_residual * before
        slope = units * others.mT if ctx.targets == 1 else units @ others.mT
        return 0.5 * (slope + slope.mT), (by_residual * units).sum(-1), None


def normal_log_density(error: Tensor, variance: Tensor) -> Tensor:
    """The log density of normal errors."""
    return -0.5 * (error.square() / variance + variance.log() + math.log(2.0 * math.pi))


def student_log_density(error: Tensor, variance: Tensor) -> Tensor:
    """The log density of Student's t with four degrees of freedom, on which spikes have little influence."""
    tails = 0.5 * (_FREEDOM + 1.0) * (error.square() / (_FREEDOM * variance)).log1p()
    return _STUDENT - 0.5 * variance.log() - tails
