"""Stationary kernels as functions of scaled distances, and their matrices with gradients in closed form."""

from __future__ import annotations

import enum
from typing import Any

import torch
from torch import Tensor

_LARGE = 1e6
"""Squared norms from which on squared distances by products are wrong by more than about 1e-9."""


class Profile(enum.IntEnum):
    r"""A kernel as a function of squared scaled distances, :math:`f(\sum_k \tau_k^2 / \ell_k^2)`.

    The rational quadratic one is :math:`(1 + r^2 / 2 \alpha)^{-\alpha}`; others have no :math:`\alpha`.
    Numbers are those of ``lanes.h``.
    """

    GAUSSIAN = 0
    MATERN_1_2 = 1
    MATERN_3_2 = 2
    MATERN_5_2 = 3
    RATIONAL_QUADRATIC = 4

    def values(self, squared: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        r"""f, its slope -2 f', and :math:`\partial f / \partial \alpha` where there is an :math:`\alpha`.

        The slope times :math:`\tau_k^2 / \ell_k^2` is :math:`\partial f / \partial \log \ell_k`.
        """
        if self is Profile.GAUSSIAN:
            value = torch.exp(-0.5 * squared)
            return value, value, None
        if self is Profile.RATIONAL_QUADRATIC:
            part = squared / (2.0 * alpha)
            logarithm = part.log1p()
            value = torch.exp(-alpha * logarithm)
            slope = value / part.add_(1.0)
            return value, slope, value - slope - value * logarithm
        if self is Profile.MATERN_1_2:
            distance = squared.sqrt()
            value = torch.exp(-distance)
            return value, (value / distance).masked_fill_(distance == 0, 0.0), None
        if self is Profile.MATERN_3_2:
            distance = (3.0 * squared).sqrt_()
            decay = torch.exp(-distance)
            return distance.add_(1.0).mul_(decay), decay.mul_(3.0), None
        distance = (5.0 * squared).sqrt_()
        decay = torch.exp(-distance)
        slope = (1.0 + distance).mul_(decay)
        return torch.addcmul(slope, squared, decay, value=5.0 / 3.0), slope.mul_(5.0 / 3.0), None


def stationary_matrix(points: Tensor, profile: Profile, alpha: Tensor) -> Tensor:
    """The kernel matrix (..., n, n) of scaled inputs (..., n, q), differentiable.

    :param points: inputs divided by lengthscales, near zero: distances come from products.
    :param profile: the kernel.
    :param alpha: that of a rational quadratic kernel, (); others do not see it.

    >>> points = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    >>> stationary_matrix(points, Profile.GAUSSIAN, torch.ones(()).double())
    tensor([[1.0000, 0.6065],
            [0.6065, 1.0000]], dtype=torch.float64)
    """
    matrix: Tensor = _StationaryMatrix.apply(points, alpha, profile)
    return matrix


def _squared_distances(x: Tensor, profile: Profile) -> Tensor:
    """Squared distances (..., n, n) of rows (..., n, d): by differences where products would lose their digits.

    Those are digits of small distances, of which only one kernel takes the root.
    """
    squares = x.square().sum(-1)
    if profile is Profile.MATERN_1_2 or bool((squares > _LARGE).any()):
        return torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square_()
    rows = x.reshape(-1, *x.shape[-2:])
    squared = torch.baddbmm(squares.reshape(-1, 1, x.shape[-2]), rows, rows.mT, alpha=-2.0)
    return squared.reshape(*x.shape[:-1], x.shape[-2]).add_(squares.unsqueeze(-1)).clamp_(min=0.0)


class _StationaryMatrix(torch.autograd.Function):
    r"""With slopes S and gradients W of the matrix, which are taken to be symmetric:
    :math:`-2 \sum_j W_{ij} S_{ij} (u_i - u_j)` for the inputs :math:`u_i`.
    """

    @staticmethod
    def forward(ctx: Any, points: Tensor, alpha: Tensor, profile: Profile) -> Tensor:
        squared = _squared_distances(points, profile)
        squared.diagonal(dim1=-2, dim2=-1).zero_()
        value, slope, of_alpha = profile.values(squared, alpha)
        ctx.save_for_backward(points, slope, of_alpha)
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None]:
        points, slope, of_alpha = ctx.saved_tensors
        weights = gradients[0] * slope
        of_points = 2.0 * (weights @ points - weights.sum(-1, keepdim=True) * points)
        return of_points, None if of_alpha is None else (gradients[0] * of_alpha).sum(), None
