"""Variance and error of operator-valued random Fourier features at a pair of inputs, in the Hilbert-Schmidt norm."""

from __future__ import annotations

import math

import scipy
from torch import Tensor

from ..._support import checks
from . import _common
from .fourier import fourier_variance
from .tail import TailBound, over_compact_set


def operator_fourier_variance(kernel: Tensor, kernel_at_double: Tensor, coregionalization: Tensor) -> Tensor:
    r"""Variance of what a single frequency adds to the estimate of a decomposable kernel from cos and sin columns.

    .. math:: V(\tau) = E\big[(\cos(w^\top \tau) \Gamma - k(\tau) \Gamma)^2\big]
        = \Big(\tfrac12 + \tfrac12 k(2 \tau) - k(\tau)^2\Big) \Gamma^2

    The estimate from D columns, two per frequency, has the variance :math:`2 V / D`.

    :param kernel: values :math:`k(\tau)` of a shift-invariant kernel with k(0) = 1, of any shape.
    :param kernel_at_double: its values :math:`k(2 \tau)`, of the same shape.
    :param coregionalization: the positive semi-definite matrix Gamma, (p, p).
    :returns: a float64 tensor (..., p, p).
    :raises ValueError: for kernel values outside of [-1, 1], shapes that differ, or a bad matrix.

    Source: B Proposition 33 and 4.4.1, corrected.

    >>> import torch
    >>> gamma = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    >>> operator_fourier_variance(torch.tensor(0.5), torch.tensor(0.0625), gamma)
    tensor([[1.4062, 1.1250],
            [1.1250, 1.4062]], dtype=torch.float64)
    """
    gamma = _common.coregionalization(coregionalization)
    return fourier_variance(kernel, kernel_at_double)[..., None, None] * (gamma @ gamma)


def operator_fourier_bound(largest_norm: float, second_moment: float | None = None) -> TailBound:
    r"""Bound on the Hilbert-Schmidt error of bounded operator features in one value of an operator.

    .. math:: \Pr\big[\|\hat K(\tau) - K(\tau)\|_{HS} \ge \epsilon\big] \le
        2 \exp\Big(\frac{-D \epsilon}{4 M} \log\Big(1 + \frac{M \epsilon}{\sigma^2}\Big)\Big), \qquad
        \|A(w)\|_{HS} \le M, \quad \sigma^2 = E \|A(w)\|_{HS}^2

    with D columns for each output of :math:`A(w)^{1/2}`, cos and sin for each of D/2 independent frequencies w, and
    :math:`K(\tau) = E[\cos(w^\top \tau) A(w)]`. M and sigma are :math:`\|\Gamma\|_{HS}` for a decomposable kernel. For
    curl-free and divergence-free features of a Gaussian kernel with the trace measure they are
    :math:`d / \text{lengthscale}^2` and :math:`\sqrt{d - 1}` times that.

    :param largest_norm: the bound M.
    :param second_moment: sigma squared, at most M squared; default: M squared.
    :raises ValueError: for a number that is not positive, or a second moment beyond the square of the bound.

    Source: M Theorem 11, where D counts frequencies.

    >>> bound = operator_fourier_bound(largest_norm=1.0)
    >>> bound.failure_probability(1000, epsilon=0.2), bound.num_features(epsilon=0.2, delta=0.05)
    (0.00021..., 406)
    """
    largest = checks.positive("largest_norm", largest_norm)
    moment = largest * largest if second_moment is None else checks.positive("second_moment", second_moment)
    if moment > largest * largest * (1.0 + 1e-9):
        raise ValueError(
            f"expected a second_moment of at most {largest * largest:g}, the square of largest_norm, got {moment:g}; "
            "increase largest_norm"
        )
    return TailBound(
        log_factor=lambda epsilon: math.log(2.0),
        rate=lambda epsilon: epsilon / (4.0 * largest) * math.log1p(epsilon * (largest / moment)),
        cos_and_sin=True,
    )


def minh_bound(
    input_dim: int, diameter: float, slope: float, largest_norm: float, second_moment: float | None = None
) -> TailBound:
    r"""Minh's bound on the largest Hilbert-Schmidt error of bounded operator features on a compact set.

    .. math:: \Pr\Big[\sup_{x, y} \|\hat K(x - y) - K(x - y)\|_{HS} \ge \epsilon\Big] \le
        2^{\frac{1}{d + 1}} c_d \, s^{\frac{d}{d + 1}}
        \exp\Big(\frac{-D \epsilon}{8 (d + 1) M} \log\Big(1 + \frac{M \epsilon}{2 \sigma^2}\Big)\Big)

    .. math:: c_d = d^{\frac{1}{d + 1}} + d^{-\frac{d}{d + 1}}, \qquad
        s = \max\Big(1, \frac{16 m \ell}{\epsilon}\Big), \qquad m = E\big[\|w\| \|A(w)\|_{HS}\big]

    with the features, M, sigma and other parameters of :func:`operator_fourier_bound`.

    :param input_dim: the number of columns d of the inputs.
    :param diameter: the diameter :math:`\ell` of the compact set of inputs.
    :param slope: m; for a decomposable kernel :math:`\|\Gamma\|_{HS} E\|w\|`.
    :raises ValueError: for a number that is not positive, or a second moment beyond the square of the bound.

    Source: M Theorem 12, where D counts frequencies, with the maximum.

    >>> bound = minh_bound(2, 4.0, slope=1.2533, largest_norm=1.0)
    >>> bound.failure_probability(50_000, epsilon=0.2), bound.num_features(epsilon=0.2, delta=0.05)
    (7.33...e-16, 9896)
    """
    return over_compact_set(operator_fourier_bound(largest_norm, second_moment), input_dim, diameter, slope)


def brault_bounded_bound(
    input_dim: int, diameter: float, slope: float, *, variance: float, largest_error: float, intrinsic_dim: float
) -> TailBound:
    r"""Brault's bound on the largest error of bounded operator features on a compact set, in the operator norm.

    .. math:: \Pr\Big[\sup_{x, y} \|\hat K(x - y) - K(x - y)\| \ge \epsilon\Big] \le
        (4 p_{int})^{\frac{1}{d + 1}} c_d \, s^{\frac{d}{d + 1}}
        \exp\Big(\frac{-D \epsilon^2}{16 (d + 1) (v + u \epsilon / 6)}\Big)

    .. math:: c_d = d^{\frac{1}{d + 1}} + d^{-\frac{d}{d + 1}}, \qquad
        s = \max\Big(1, \frac{16 m \ell}{\epsilon}\Big), \qquad m = E\big[\|w\| \|A(w)\|\big]

    with D columns for each output of :math:`A(w)^{1/2}`, cos and sin for each of D/2 independent frequencies w.
    :func:`decomposable_constants`, :func:`curl_free_constants` and :func:`divergence_free_constants` give them.

    :param input_dim: the number of columns d of the inputs.
    :param diameter: the diameter :math:`\ell` of the compact set.
    :param slope: m.
    :param variance: v, at least the largest norm of :math:`V(\tau)`: see :func:`operator_fourier_variance`.
    :param largest_error: u, the largest :math:`\|\cos(w^\top \tau) A(w) - K(\tau)\|`.
    :param intrinsic_dim: :math:`p_{int}`, at least the largest trace of :math:`V(\tau)` / v, such as the number p.
    :raises ValueError: for a number that is not positive, or an intrinsic dimension below 1.

    Source: B Corollary 32, corrected, where D counts frequencies.

    >>> from rfgp.diagnostics.bounds import curl_free_constants
    >>> bound = brault_bounded_bound(2, 2.0, **curl_free_constants(2, lengthscale=1.0))
    >>> bound.failure_probability(50_000, epsilon=0.3), bound.num_features(epsilon=0.3, delta=0.05)
    (8.10...e-34, 5104)
    """
    intrinsic = _common.at_least_one("intrinsic_dim", intrinsic_dim)
    variance, largest = checks.positive("variance", variance), checks.positive("largest_error", largest_error)
    return over_compact_set(_bernstein(4.0 * intrinsic, variance, largest), input_dim, diameter, slope)


def brault_subexponential_bound(
    input_dim: int,
    diameter: float,
    slope: float,
    *,
    variance: float,
    orlicz_norm: float,
    output_dim: int,
    intrinsic_dim: float | None = None,
) -> TailBound:
    r"""A bound like Brault's for unbounded operator features: the largest error on a compact set, in the operator norm.

    .. math:: \Pr\Big[\sup_{x, y} \|\hat K(x - y) - K(x - y)\| \ge \epsilon\Big] \le
        \Big(4 \frac{p_{int} + 1}{1 + 1/p}\Big)^{\frac{1}{d + 1}} c_d \, s^{\frac{d}{d + 1}}
        \exp\Big(\frac{-D \epsilon^2}{16 (d + 1) (v (1 + 1/p) + \kappa u \epsilon / 6)}\Big)

    .. math:: \kappa - 2 \log \kappa = 3 + \max\Big(0, \log\frac{2 p u^2}{v}\Big), \qquad
        u \ge \inf\big\{C: E e^{\|\cos(w^\top \tau) A(w) - K(\tau)\| / C} \le 2\big\}

    with c, s, m, v and other parameters of :func:`brault_bounded_bound`, and the larger solution kappa.

    :param orlicz_norm: u, or the Orlicz norm of :math:`\|A(w)\|` plus the largest :math:`\|K(\tau)\| / \log 2`.
    :param output_dim: p, at least the number of outputs.
    :param intrinsic_dim: :math:`p_{int}`, at least 1 and the largest trace of that variance divided by v; default: p.
    :raises ValueError: for a number that is not positive, or an intrinsic dimension below 1.

    Source: B Corollary 31, with another concentration inequality; D counts frequencies there.

    >>> from rfgp.diagnostics.bounds import curl_free_constants
    >>> bound = brault_subexponential_bound(2, 2.0, **curl_free_constants(2, lengthscale=1.0, bounded=False))
    >>> bound.failure_probability(50_000, epsilon=0.3), bound.num_features(epsilon=0.3, delta=0.05)
    (0.00097..., 33950)
    """
    p = checks.positive_integer("output_dim", output_dim)
    intrinsic = float(p) if intrinsic_dim is None else _common.at_least_one("intrinsic_dim", intrinsic_dim)
    variance, norm = checks.positive("variance", variance), checks.positive("orlicz_norm", orlicz_norm)
    kappa = _kappa(math.log(2.0 * p) + 2.0 * math.log(norm) - math.log(variance))
    factor = 4.0 * (intrinsic + 1.0) / (1.0 + 1.0 / p)
    return over_compact_set(_bernstein(factor, variance * (1.0 + 1.0 / p), kappa * norm), input_dim, diameter, slope)


def _bernstein(factor: float, variance: float, largest: float) -> TailBound:
    """The bound on one error in the operator norm."""
    return TailBound(
        log_factor=lambda epsilon: math.log(factor),
        rate=lambda epsilon: 0.25 * epsilon * (epsilon / (variance + largest * epsilon / 3.0)),
        cos_and_sin=True,
    )


def _kappa(log_ratio: float) -> float:
    """The larger solution of kappa - 2 log kappa = 3 + max(0, log_ratio)."""
    return float(-2.0 * scipy.special.lambertw(-0.5 * math.exp(-0.5 * (3.0 + max(0.0, log_ratio))), k=-1).real)
