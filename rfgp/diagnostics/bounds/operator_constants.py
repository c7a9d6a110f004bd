"""The constants of operator-valued kernels that Brault's bounds take."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..._support import checks
from . import _common


def decomposable_constants(coregionalization: Tensor, mean_norm: float, variance: float = 1.0) -> dict[str, float]:
    r"""Constants of a decomposable kernel :math:`k(\tau) \Gamma` for :func:`brault_bounded_bound`.

    .. math:: m = \|\Gamma\| E\|w\|, \qquad v = \|\Gamma\|^2 \sup_\tau v(\tau), \qquad u = 2 \|\Gamma\|, \qquad
        p_{int} = \frac{\operatorname{tr} \Gamma^2}{\|\Gamma\|^2}

    :param coregionalization: the positive semi-definite matrix Gamma, (p, p), not zero.
    :param mean_norm: :math:`E\|w\|`, at most the square root of the second moment.
    :param variance: at least the largest ``fourier_variance`` on the compact set, positive; 1/2 does
        for a Gaussian kernel, and 1 for every kernel.
    :raises ValueError: for a bad matrix, or a number that is not positive, or a variance above 1.

    Source: B 4.4.1, corrected.

    >>> decomposable_constants(torch.tensor([[2.0, 1.0], [1.0, 2.0]]), mean_norm=1.5, variance=0.5)
    {'slope': 4.5, 'variance': 4.5, 'largest_error': 6.0, 'intrinsic_dim': 1.111...}
    """
    spectrum = torch.linalg.eigvalsh(_common.coregionalization(coregionalization))
    norm = float(spectrum[-1])
    if norm <= 0.0:
        raise ValueError(
            "expected a coregionalization matrix other than zero, whose features make no error; pass another"
        )
    largest = float(_common.within("variance", checks.positive("variance", variance), 0.0))
    return {
        "slope": norm * checks.positive("mean_norm", mean_norm),
        "variance": norm**2 * largest,
        "largest_error": 2.0 * norm,
        "intrinsic_dim": float((spectrum / norm).square().sum()),
    }


def curl_free_constants(input_dim: int, lengthscale: float, bounded: bool = True) -> dict[str, Any]:
    r"""Constants of the curl-free kernel of a Gaussian kernel for the bounds in the operator norm.

    .. math:: A(w) = w w^\top \text{ with } w \sim N(0, I/l^2), \qquad
        m = \frac{2^{3/2} \Gamma(\frac{d + 3}{2})}{l^3 \, \Gamma(\frac d2)}, \qquad v = \frac{d + 1}{l^4}, \qquad
        u = \frac{2}{l^2 (1 - 4^{-1/d})} + \frac{1}{l^2 \log 2}

    where they are unbounded, and with the trace measure

    .. math:: A(w) = \frac{d}{l^2} \frac{w w^\top}{\|w\|^2}, \qquad v = \frac{\max(d - 1, d/2)}{l^4}, \qquad
        u = \frac{d + 1}{l^2}

    with the same m. The variances are largest norms over all :math:`\tau`.

    :param input_dim: the number of columns d of the inputs.
    :param lengthscale: l, of the Gaussian kernel.
    :param bounded: whether frequencies come from the trace measure.
    :returns: the keyword arguments of :func:`brault_bounded_bound`, or of :func:`brault_subexponential_bound`.
    :raises ValueError: for a bad dimension or lengthscale.

    Source: B 4.4.2, 4.4.3; M Eq. 54 for the trace measure.

    >>> curl_free_constants(3, lengthscale=1.0)
    {'slope': 6.383..., 'variance': 2.0, 'largest_error': 4.0, 'intrinsic_dim': 3}
    """
    d, precision, slope = _gaussian(input_dim, lengthscale)
    if checks.flag("bounded", bounded):
        return _bounded(d, slope, max(d - 1.0, d / 2.0) * precision**2, (d + 1) * precision)
    return _unbounded(d, slope, (d + 1) * precision**2, precision, precision)


def divergence_free_constants(input_dim: int, lengthscale: float, bounded: bool = True) -> dict[str, Any]:
    r"""Constants of the divergence-free kernel of a Gaussian kernel for the bounds in the operator norm.

    .. math:: A(w) = \|w\|^2 I - w w^\top \text{ with } w \sim N(0, I/l^2), \qquad
        v = \frac{d - 1}{l^4} \max\Big(3, \frac{d + 3}{2}\Big), \qquad
        u = \frac{2}{l^2 (1 - 4^{-1/d})} + \frac{d - 1}{l^2 \log 2}

    where they are unbounded, and with the trace measure

    .. math:: A(w) = \frac{d}{l^2} \Big(I - \frac{w w^\top}{\|w\|^2}\Big), \qquad v = \frac{d (d - 1)}{2 l^4}, \qquad
        u = \frac{2 d - 1}{l^2}

    with m, other parameters and result of :func:`curl_free_constants`.

    :param input_dim: the number of columns d of the inputs, at least 2.
    :raises ValueError: for a bad dimension or lengthscale.

    Source: B 4.4.2, 4.4.3, corrected; M Eq. 56 for the trace measure.

    >>> divergence_free_constants(3, lengthscale=1.0)
    {'slope': 6.383..., 'variance': 3.0, 'largest_error': 5.0, 'intrinsic_dim': 3}
    """
    d, precision, slope = _gaussian(input_dim, lengthscale)
    if d < 2:
        raise ValueError(
            "expected an input_dim of at least 2, got 1; fields of one dimension have no divergence-free part"
        )
    if checks.flag("bounded", bounded):
        return _bounded(d, slope, d * (d - 1) / 2.0 * precision**2, (2 * d - 1) * precision)
    return _unbounded(d, slope, (d - 1) * max(3.0, (d + 3) / 2.0) * precision**2, precision, (d - 1) * precision)


def _gaussian(input_dim: int, lengthscale: float) -> tuple[int, float, float]:
    """d, 1/l^2 and E|w|^3; the latter is E[|w| |A(w)|] for all features of curl- and divergence-free kernels."""
    d = checks.positive_integer("input_dim", input_dim)
    scale = 1.0 / checks.positive("lengthscale", lengthscale)
    return d, scale**2, scale**3 * 2.0**1.5 * math.exp(math.lgamma((d + 3) / 2.0) - math.lgamma(d / 2.0))


def _bounded(d: int, slope: float, variance: float, largest_error: float) -> dict[str, Any]:
    return {"slope": slope, "variance": variance, "largest_error": largest_error, "intrinsic_dim": d}


def _unbounded(d: int, slope: float, variance: float, precision: float, largest_kernel: float) -> dict[str, Any]:
    """The Orlicz norm of |w|^2, whose moment generating function (1 - 2 t/l^2)^(-d/2) is 2 at its inverse."""
    chi_square = -2.0 * precision / math.expm1(-math.log(4.0) / d)
    orlicz_norm = chi_square + largest_kernel / math.log(2.0)
    return {"slope": slope, "variance": variance, "orlicz_norm": orlicz_norm, "output_dim": d}
