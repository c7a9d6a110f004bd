"""Sums of spectral densities over the frequencies of a grid: what a periodic kernel has beside a constant."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_TERMS = 4
"""Terms of a theta series, of which the first that is left out is below 1e-17."""

_CONSTANT = 1e-3
"""With squared periods below this the sum is zero in float64."""


def gaussian_beside_zero(squares: Tensor) -> Tensor:
    r"""The sum of the weights of all frequencies of a grid but zero, for a Gaussian kernel.

    .. math:: \sum_{j \ne 0} \prod_a \sqrt{\frac{2 \pi}{t_a}}\, e^{-2 \pi^2 j_a^2 / t_a}
        = \prod_a \sum_n e^{-n^2 t_a / 2} - \prod_a \sqrt{\frac{2 \pi}{t_a}}

    by the one of the two series that converges fast, without their difference where that loses digits.

    :param squares: t, the squared periods in units of the lengthscale, (..., d).
    """
    squares = squares.clamp_min(_CONSTANT)
    near, far = squares.clamp_min(2.0 * math.pi), squares.clamp_max(2.0 * math.pi)
    constants = 0.5 * (2.0 * math.pi / squares).log()
    numbers = torch.arange(1.0, _TERMS + 1.0, dtype=squares.dtype, device=squares.device).square()
    by_copies = 2.0 * torch.exp(-0.5 * numbers * near.unsqueeze(-1)).sum(-1)
    by_frequencies = 2.0 * torch.exp(-2.0 * math.pi**2 * numbers / far.unsqueeze(-1)).sum(-1)
    excess = torch.where(squares > 2.0 * math.pi, torch.log1p(by_copies) - constants, torch.log1p(by_frequencies))
    return constants.sum(-1).exp() * torch.expm1(excess.sum(-1))


def mixture_beside_zero(periods: Tensor, log_scales: Tensor, log_shares: Tensor) -> Tensor:
    r"""The same, (...), for a mixture :math:`\sum_q s_q \exp(-g_q r^2/2)` of Gaussian kernels.

    :param periods: of a grid, in units of the lengthscale, (..., d).
    :param log_scales: the logarithms of g, (..., Q).
    :param log_shares: the logarithms of s, (..., Q).
    """
    squares = log_scales.exp().unsqueeze(-1) * periods.square().unsqueeze(-2)
    return (log_shares.exp() * gaussian_beside_zero(squares)).sum(-1)


def laplace_beside_zero(periods: Tensor) -> Tensor:
    r"""The same, (...), for :math:`\exp(-\|x\|_1)`: :math:`\prod_a \coth(p_a/2) - \prod_a 2/p_a`."""
    half = 0.5 * periods
    small = half.clamp_max(0.01)
    excess = torch.where(
        half < 0.01, small.square() / 3.0 - 7.0 * small**4 / 90.0, (half / torch.tanh(half)).clamp_min(1.0).log()
    )
    return half.reciprocal().prod(-1) * torch.expm1(excess.sum(-1))
