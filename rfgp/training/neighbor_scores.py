"""Predictions of rows from others, in closed form from one or two small Cholesky factors a row, with gradients."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..linalg import cholesky

_FREEDOM = 4.0
_FARTHEST, _FEW_ROWS, _SHARE_OF_ROWS = 10.0, 2, 0.005
_STUDENT = math.lgamma(0.5 * (_FREEDOM + 1.0)) - math.lgamma(0.5 * _FREEDOM) - 0.5 * math.log(math.pi * _FREEDOM)


def last_errors(matrix: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    r"""The error of the last of n residuals (..., n) as predicted from the others, and its variance, (...).

    .. math:: \epsilon = \alpha_n / w_n, \qquad v = 1 / w_n, \qquad \alpha = A^{-1} r, \qquad w = A^{-1} e_n

    :param matrix: the covariance A of noisy observations, (..., n, n).
    """
    error, variance = _LastErrors.apply(matrix, residual)
    return error, variance


class _LastErrors(torch.autograd.Function):
    r"""The gradients have rank two: :math:`d\epsilon = -v w^\top dA (\alpha - \epsilon w) + v w^\top dr`,
    :math:`dv = v^2 w^\top dA\, w`.
    """

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        factor = cholesky(matrix)
        white = torch.linalg.solve_triangular(factor, residual.unsqueeze(-1), upper=False)
        ctx.save_for_backward(factor, white)
        last = factor[..., -1, -1]
        return white[..., -1, 0] * last, last.square()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_error: Tensor, of_variance: Tensor) -> tuple[Tensor, Tensor]:
        factor, white = ctx.saved_tensors
        last = factor[..., -1, -1]
        unit = torch.zeros_like(white)
        unit[..., -1, 0] = last  # the second solution is v w
        alpha, w = torch.linalg.solve_triangular(factor.mT, torch.cat([white, unit], dim=-1), upper=True).unbind(-1)
        error = (white[..., -1, 0] / last).unsqueeze(-1)
        left = of_variance.unsqueeze(-1) * w - of_error.unsqueeze(-1) * (alpha - error * w)
        slope = left.unsqueeze(-1) * w.unsqueeze(-2)
        return 0.5 * (slope + slope.mT), of_error.unsqueeze(-1) * w


def student_log_density(error: Tensor, variance: Tensor) -> Tensor:
    """The log density of Student's t with four degrees of freedom, on which spikes have little influence."""
    tails = 0.5 * (_FREEDOM + 1.0) * (error.square() / (_FREEDOM * variance)).log1p()
    return _STUDENT - 0.5 * variance.log() - tails


def class_moments(matrix: Tensor, inside: Tensor, targets: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
    r"""Means and variances (B, C) of the latent functions of classes at the last of n inputs, given the labels of m.

    With :math:`A = K + s_0 I`, :math:`z = A^{-1} k` and labels c, for all classes at once

    .. math:: D_c^{-1} k = z + A^{-1} (1_c \circ M^{-1} z), \qquad
        M = \frac{1}{s_0 - s_1} I - A^{-1} \circ [c_i = c_j]

    :param matrix: prior covariances, (B, n, n) with n = m + 1.
    :param inside: which label is which class, (B, m, C), ones and zeros.
    :param targets: the transformed labels inside and outside of a class, and the noise variances there, (4,).
    :param means: the prior means of the classes, (C,).

    Source: errata, identity 10 of the last section.
    """
    mean, variance = _ClassMoments.apply(matrix, inside, targets, means)
    return mean, variance


class _ClassMoments(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, inside: Tensor, targets: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
        t1, t0, s1, s0 = targets.tolist()
        inner, cross = matrix[..., :-1, :-1].clone(), matrix[..., :-1, -1:]
        inner.diagonal(dim1=-2, dim2=-1).add_(s0)
        inverse = torch.cholesky_inverse(cholesky(inner))
        same = (inside @ inside.mT).mul_(inverse).neg_()
        same.diagonal(dim1=-2, dim2=-1).add_(1.0 / (s0 - s1))
        factor = cholesky(same)
        z = inverse @ cross
        weights = torch.baddbmm(z, inverse, inside * torch.cholesky_solve(z, factor))
        labels = (t0 - means) + (t1 - t0) * inside
        ctx.save_for_backward(inverse, factor, cross, inside, weights, labels)
        return means + (weights * labels).sum(-2), matrix[..., -1, -1:] - (weights * cross).sum(-2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_mean: Tensor, of_variance: Tensor) -> tuple[Tensor, None, Tensor, Tensor]:
        inverse, factor, cross, inside, weights, labels = ctx.saved_tensors
        solved = inverse @ labels
        own = torch.cholesky_solve((solved * inside).sum(-1, keepdim=True), factor)
        solved = torch.baddbmm(solved, inverse, inside * own)
        g, h = of_mean.unsqueeze(-2), of_variance.unsqueeze(-2)
        by_weight = h * weights - g * solved
        inner = weights @ by_weight.mT
        size = cross.shape[-2]
        slope = cross.new_empty(len(cross), size + 1, size + 1)
        slope[..., :-1, :-1] = 0.5 * (inner + inner.mT)
        column = (0.5 * g * solved - h * weights).sum(-1)
        slope[..., :-1, -1], slope[..., -1, :-1], slope[..., -1, -1] = column, column, of_variance.sum(-1)
        noise, value = weights * by_weight, g * weights
        of_targets = [value, noise]
        totals = torch.stack([(part * which).sum() for part in of_targets for which in (inside, 1.0 - inside)])
        return slope, None, totals, (of_mean - value.sum(-2)).sum(0)


def transformed(alpha_epsilon: Tensor) -> Tensor:
    """The values (4,) of ``dirichlet_targets``, differentiable in alpha_epsilon."""
    inside_noise, outside_noise = (1.0 / (1.0 + alpha_epsilon)).log1p(), (1.0 / alpha_epsilon).log1p()
    inside, outside = alpha_epsilon.log1p() - 0.5 * inside_noise, alpha_epsilon.log() - 0.5 * outside_noise
    return torch.stack([inside, outside, inside_noise, outside_noise])


def robust_mean(densities: Tensor) -> Tensor:
    """The mean of log densities (n,), where few rows that are far below the others do not decide alone.

    The lowest half percent, at least two rows, count for no less than the median less 10 nats, or than the next row
    where that is lower: the tails of a wrong model are more rows than these.
    """
    values = densities.detach()
    few = max(_FEW_ROWS, math.ceil(_SHARE_OF_ROWS * len(values)))
    next_row = values.kthvalue(min(few + 1, len(values))).values
    return densities.clamp_min(torch.minimum(next_row, values.median() - _FARTHEST)).mean()
