"""Bounds for operator-valued random Fourier features, in the Hilbert-Schmidt norm and in the operator norm."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .. import _checks
from . import _common
from .fourier import fourier_variance


def operator_fourier_variance(kernel: Tensor, kernel_at_double: Tensor, coregionalization: Tensor) -> Tensor:
    r"""Variance of what a single frequency adds to the estimate of a decomposable kernel from cos and sin columns.

    .. math:: V(\tau) = E\big[(\cos(w^\top \tau) \Gamma - k(\tau) \Gamma)^2\big]
        = \Big(\tfrac12 + \tfrac12 k(2 \tau) - k(\tau)^2\Big) \Gamma^2

    The estimate from D columns, two per frequency, has the variance :math:`2 V / D`. This is the case :math:`A(w) =
    \Gamma` of the identity

    .. math:: V(\tau) = \tfrac12 E[A(w)^2] + \tfrac12 E[\cos(2 w^\top \tau) A(w)^2] - K(\tau)^2

    which stands in place of the inequality of B: its proof loses a factor 2 where a covariance with :math:`1 + \cos(2
    w^\top \tau)` becomes one with :math:`\cos(w^\top \tau)^2`, which is half of it.

    :param kernel: values :math:`k(\tau)` of a shift-invariant kernel with k(0) = 1, of any shape.
    :param kernel_at_double: its values :math:`k(2 \tau)`, of the same shape.
    :param coregionalization: the positive semi-definite matrix Gamma, (p, p).
    :returns: a float64 tensor (..., p, p).
    :raises ValueError: for kernel values outside of [-1, 1], shapes that differ, or a bad matrix.

    Source: B Proposition 33 and 4.4.1, corrected.

    >>> gamma = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    >>> operator_fourier_variance(torch.tensor(0.5), torch.tensor(0.0625), gamma)
    tensor([[1.4062, 1.1250],
            [1.1250, 1.4062]], dtype=torch.float64)
    """
    gamma = _matrix(coregionalization)
    return fourier_variance(kernel, kernel_at_double)[..., None, None] * (gamma @ gamma)


def operator_fourier_failure_probability(
    num_features: int, epsilon: float, largest_norm: float, second_moment: float | None = None
) -> float:
    r"""Upper bound on the probability that bounded operator features miss one value of an operator by epsilon.

    .. math:: \Pr\big[\|\hat K(\tau) - K(\tau)\|_{HS} \ge \epsilon\big] \le
        2 \exp\Big(\frac{-D \epsilon}{4 M} \log\Big(1 + \frac{M \epsilon}{\sigma^2}\Big)\Big), \qquad
        \|A(w)\|_{HS} \le M, \quad \sigma^2 = E \|A(w)\|_{HS}^2

    with D columns for each output of :math:`A(w)^{1/2}`, cos and sin for each of D/2 independent frequencies w, and
    :math:`K(\tau) = E[\cos(w^\top \tau) A(w)]`. M and sigma are :math:`\|\Gamma\|_{HS}` for a decomposable kernel. For
    curl-free and divergence-free features of a Gaussian kernel with the trace measure they are :math:`d /
    \text{lengthscale}^2` and :math:`\sqrt{d - 1}` times that; the bound :math:`\operatorname{tr} K(0)` of M is larger
    for the latter. Features with other measures are not bounded.

    The inequality is that of Smale and Zhou (2007), whose M bounds the terms before their mean is subtracted. It
    follows from Pinelis' inequality for the difference, as the mean that adds :math:`\|K(\tau)\|` to the bound takes
    :math:`\|K(\tau)\|^2` from the second moment.

    :param num_features: the number of columns D, even, as that of the scalar map.
    :param epsilon: the error in the Hilbert-Schmidt norm, positive.
    :param largest_norm: the bound M.
    :param second_moment: sigma squared, at most M squared, which is taken by default.
    :returns: a probability, at most 1.
    :raises ValueError: for an odd or bad num_features, another number that is not positive, or a second moment beyond
        the square of the bound.

    Source: M Theorem 11, where D counts frequencies.

    >>> operator_fourier_failure_probability(1000, 0.2, largest_norm=1.0)
    0.00021...
    """
    count = _common.frequencies(num_features)
    rate = _hilbert_schmidt_rate(_common.positive("epsilon", epsilon), largest_norm, second_moment)
    return math.exp(min(0.0, math.log(2.0) - rate * count))


def operator_fourier_num_features(
    epsilon: float, delta: float, largest_norm: float, second_moment: float | None = None
) -> int:
    r"""Columns with which bounded operator features are within epsilon of one operator with probability 1 - delta.

    .. math:: D \ge \frac{4 M}{\epsilon \log(1 + M \epsilon / \sigma^2)} \log\frac{2}{\delta}

    The inverse of :func:`operator_fourier_failure_probability`: the smallest even number for which that bound is at
    most delta.

    :param epsilon: the error in the Hilbert-Schmidt norm, positive.
    :param delta: the probability of a larger error, between 0 and 1.
    :param largest_norm: the bound M on :math:`\|A(w)\|_{HS}`.
    :param second_moment: :math:`\sigma^2 = E \|A(w)\|_{HS}^2`, at most M squared, which is taken by default.
    :returns: an even number of columns.
    :raises ValueError: for a number outside of its range, or more than :math:`2^{53}` features.

    Source: M Theorem 11, where D counts frequencies.

    >>> operator_fourier_num_features(0.2, 0.05, largest_norm=1.0)
    406
    """
    rate = _hilbert_schmidt_rate(_common.positive("epsilon", epsilon), largest_norm, second_moment)
    return _columns(math.log(2.0), rate, delta)


def minh_failure_probability(
    input_dim: int,
    diameter: float,
    slope: float,
    num_features: int,
    epsilon: float,
    largest_norm: float,
    second_moment: float | None = None,
) -> float:
    r"""Minh's bound on the probability that an operator on a compact set is missed by epsilon, for bounded features.

    .. math:: \Pr\Big[\sup_{x, y} \|\hat K(x - y) - K(x - y)\|_{HS} \ge \epsilon\Big] \le
        2^{\frac{1}{d + 1}} c_d \, s^{\frac{d}{d + 1}}
        \exp\Big(\frac{-D \epsilon}{8 (d + 1) M} \log\Big(1 + \frac{M \epsilon}{2 \sigma^2}\Big)\Big)

    .. math:: c_d = d^{\frac{1}{d + 1}} + d^{-\frac{d}{d + 1}}, \qquad
        s = \max\Big(1, \frac{16 m \ell}{\epsilon}\Big), \qquad m = E\big[\|w\| \|A(w)\|_{HS}\big]

    with the features, M and sigma of :func:`operator_fourier_failure_probability`. M has the diameter of the set of
    differences in place of :math:`2 \ell`. The maximum with 1 is missing there, for any epsilon, and without it the
    bound is false: it goes to zero with m, as if all errors were differences from an error at the origin, which is not
    zero unless :math:`A(w)` is constant.

    :param input_dim: the number of columns d of the inputs.
    :param diameter: the diameter :math:`\ell` of the compact set of inputs.
    :param slope: m; for a decomposable kernel :math:`\|\Gamma\|_{HS} E\|w\|`.
    :param num_features: the number of columns D, even, as that of the scalar map.
    :param epsilon: the error in the Hilbert-Schmidt norm, positive.
    :param largest_norm: the bound M on :math:`\|A(w)\|_{HS}`.
    :param second_moment: :math:`\sigma^2 = E \|A(w)\|_{HS}^2`, at most M squared, which is taken by default.
    :returns: a probability, at most 1.
    :raises ValueError: for an odd or bad num_features, another number that is not positive, or a second moment beyond
        the square of the bound.

    Source: M Theorem 12, where D counts frequencies, with the maximum.

    >>> minh_failure_probability(2, 4.0, slope=1.2533, num_features=50_000, epsilon=0.2, largest_norm=1.0)
    7.33...e-16
    """
    d, count = _checks.positive_integer("input_dim", input_dim), _common.frequencies(num_features)
    factor = _cover(d, diameter, slope, epsilon, 2.0)
    return _probability(factor, _hilbert_schmidt_rate(epsilon / 2.0, largest_norm, second_moment) / (d + 1), count)


def minh_num_features(
    input_dim: int,
    diameter: float,
    slope: float,
    epsilon: float,
    delta: float,
    largest_norm: float,
    second_moment: float | None = None,
) -> int:
    r"""Columns with which bounded operator features are within epsilon on a compact set, by Minh's bound.

    .. math:: D \ge \frac{8 M}{\epsilon \log(1 + M \epsilon / (2 \sigma^2))}
        \Big((d + 1) \log\frac{c_d}{\delta} + d \log s + \log 2\Big)

    The inverse of :func:`minh_failure_probability`, which defines the constants: the smallest even number for which
    that bound is at most delta.

    :param input_dim: the number of columns d of the inputs.
    :param diameter: the diameter of the compact set of inputs.
    :param slope: :math:`m = E[\|w\| \|A(w)\|_{HS}]`.
    :param epsilon: the error in the Hilbert-Schmidt norm, positive.
    :param delta: the probability of a larger error, between 0 and 1.
    :param largest_norm: the bound M on :math:`\|A(w)\|_{HS}`.
    :param second_moment: :math:`\sigma^2 = E \|A(w)\|_{HS}^2`, at most M squared, which is taken by default.
    :returns: an even number of columns.
    :raises ValueError: for a number outside of its range, or more than :math:`2^{53}` features.

    Source: M Theorem 12, where D counts frequencies, with the maximum.

    >>> minh_num_features(2, 4.0, slope=1.2533, epsilon=0.2, delta=0.05, largest_norm=1.0)
    9896
    """
    d = _checks.positive_integer("input_dim", input_dim)
    factor = _cover(d, diameter, slope, epsilon, 2.0)
    return _columns(factor, _hilbert_schmidt_rate(epsilon / 2.0, largest_norm, second_moment) / (d + 1), delta)


def brault_bounded_failure_probability(
    input_dim: int,
    diameter: float,
    slope: float,
    num_features: int,
    epsilon: float,
    *,
    variance: float,
    largest_error: float,
    intrinsic_dim: float,
) -> float:
    r"""Brault's bound on the probability that an operator on a compact set is missed by epsilon, for bounded features.

    .. math:: \Pr\Big[\sup_{x, y} \|\hat K(x - y) - K(x - y)\| \ge \epsilon\Big] \le
        (4 p_{int})^{\frac{1}{d + 1}} c_d \, s^{\frac{d}{d + 1}}
        \exp\Big(\frac{-D \epsilon^2}{16 (d + 1) (v + u \epsilon / 6)}\Big)

    .. math:: c_d = d^{\frac{1}{d + 1}} + d^{-\frac{d}{d + 1}}, \qquad
        s = \max\Big(1, \frac{16 m \ell}{\epsilon}\Big), \qquad m = E\big[\|w\| \|A(w)\|\big]

    in the operator norm, with D columns for each output of :math:`A(w)^{1/2}`, cos and sin for each of D/2 independent
    frequencies w. The printed bound has the covering number of another set, and Bernstein's exponent for the error
    epsilon in place of the epsilon/2 at the centres of the balls. It is restricted to epsilon from :math:`2 \sqrt{2 v
    / D} + 4 u / (3 D)` to :math:`m \ell`; here every epsilon is right. The lower limit is not needed, as
    the bound exceeds 1 wherever Bernstein's inequality

    .. math:: \Pr\Big[\Big\|\sum_j X_j\Big\| \ge t\Big] \le \frac{2 p_{int} e^{-a/2}}{(1 - e^{-a})^2}
        \le 4 p_{int} e^{-a/2}, \qquad a = \frac{t^2}{v + u t / 3}

    has no 4, which is where :math:`a < 1.23`. The maximum with 1 replaces the upper limit.

    :func:`decomposable_constants`, :func:`curl_free_constants` and :func:`divergence_free_constants` give the
    constants.

    :param input_dim: the number of columns d of the inputs.
    :param diameter: the diameter :math:`\ell` of the compact set.
    :param slope: m.
    :param num_features: the number of columns D, even, as that of the scalar map.
    :param epsilon: the error in the operator norm, positive.
    :param variance: v, at least the largest norm of the variance :math:`V(\tau)` of what a single frequency adds to
        the estimate: see :func:`operator_fourier_variance`.
    :param largest_error: u, the largest :math:`\|\cos(w^\top \tau) A(w) - K(\tau)\|`, or the sum of the largest
        :math:`\|A(w)\|` and :math:`\|K(\tau)\|`.
    :param intrinsic_dim: :math:`p_{int}`, at least 1 and the largest trace of :math:`V(\tau)` divided by v; the number
        of outputs always does.
    :returns: a probability, at most 1.
    :raises ValueError: for an odd or bad num_features, another number that is not positive, or an intrinsic dimension
        below 1.

    Source: B Corollary 32, corrected, where D counts frequencies.

    >>> constants = curl_free_constants(2, lengthscale=1.0)
    >>> brault_bounded_failure_probability(2, 2.0, num_features=50_000, epsilon=0.3, **constants)
    8.10...e-34
    """
    d, count = _checks.positive_integer("input_dim", input_dim), _common.frequencies(num_features)
    factor = _cover(d, diameter, slope, epsilon, 4.0 * _at_least_one("intrinsic_dim", intrinsic_dim))
    return _probability(factor, _bernstein_rate(epsilon / 2.0, variance, largest_error) / (d + 1), count)


def brault_bounded_num_features(
    input_dim: int,
    diameter: float,
    slope: float,
    epsilon: float,
    delta: float,
    *,
    variance: float,
    largest_error: float,
    intrinsic_dim: float,
) -> int:
    r"""Columns with which bounded operator features are within epsilon on a compact set, by Brault's bound.

    .. math:: D \ge \frac{16 (v + u \epsilon / 6)}{\epsilon^2}
        \Big((d + 1) \log\frac{c_d}{\delta} + d \log s + \log(4 p_{int})\Big)

    The inverse of :func:`brault_bounded_failure_probability`, which defines the constants: the smallest even number
    for which that bound is at most delta.

    :param input_dim: the number of columns d of the inputs.
    :param diameter: the diameter of the compact set.
    :param slope: :math:`m = E[\|w\| \|A(w)\|]`.
    :param epsilon: the error in the operator norm, positive.
    :param delta: the probability of a larger error, between 0 and 1.
    :param variance: v, at least the largest norm of the variance of what a single frequency adds to the estimate.
    :param largest_error: u, at least the largest error with a single frequency.
    :param intrinsic_dim: at least 1 and the largest trace of that variance divided by v.
    :returns: an even number of columns.
    :raises ValueError: for a number outside of its range, or more than :math:`2^{53}` features.

    Source: B Corollary 32, corrected, where D counts frequencies.

    >>> brault_bounded_num_features(2, 2.0, epsilon=0.3, delta=0.05, **curl_free_constants(2, lengthscale=1.0))
    5104
    """
    d = _checks.positive_integer("input_dim", input_dim)
    factor = _cover(d, diameter, slope, epsilon, 4.0 * _at_least_one("intrinsic_dim", intrinsic_dim))
    return _columns(factor, _bernstein_rate(epsilon / 2.0, variance, largest_error) / (d + 1), delta)


def brault_subexponential_failure_probability(
    input_dim: int,
    diameter: float,
    slope: float,
    num_features: int,
    epsilon: float,
    *,
    variance: float,
    orlicz_norm: float,
    output_dim: int,
    intrinsic_dim: float | None = None,
) -> float:
    r"""A bound as Brault's on the probability that an operator on a compact set is missed, for unbounded features.

    .. math:: \Pr\Big[\sup_{x, y} \|\hat K(x - y) - K(x - y)\| \ge \epsilon\Big] \le
        \Big(4 \frac{p_{int} + 1}{1 + 1/p}\Big)^{\frac{1}{d + 1}} c_d \, s^{\frac{d}{d + 1}}
        \exp\Big(\frac{-D \epsilon^2}{16 (d + 1) (v (1 + 1/p) + \kappa u \epsilon / 6)}\Big)

    .. math:: \kappa - 2 \log \kappa = 3 + \max\Big(0, \log\frac{2 p u^2}{v}\Big), \qquad
        u \ge \inf\big\{C: E e^{\|\cos(w^\top \tau) A(w) - K(\tau)\| / C} \le 2\big\}

    with c, s, m and v of :func:`brault_bounded_failure_probability`, and the larger solution kappa. So unbounded
    features cost a factor kappa in the bound on a single error, which grows like the logarithm in B, and 1/p of the
    variance. A larger p than the number of outputs is allowed, and lowers the bound for many features.

    B has one bound for small and one for large epsilon, with :math:`v (1 + 1/p)` and :math:`u (\log(16 \sqrt 2 p) +
    \log(u^2 / v))`, from an inequality of Minsker that is not right as printed there: it depends on the unit of epsilon
    (its r), and for small epsilon it leaves no room for a third moment, so that for a rare large A, many outputs and
    many features it is below the probability itself. The bound above takes its idea, and is proven: where R, the norm
    of an error X with a single frequency, exceeds :math:`\kappa u`,

    .. math:: E\big[e^{\pm \theta X}\big] \preceq I + \frac{\theta^2 / 2}{1 - \theta \kappa u / 3} E[X^2] +
        \frac{\theta^2}2 E\big[R^2 e^{\theta R}; R > \kappa u\big] I, \qquad \theta < \frac{3}{\kappa u}

    and the last expectation is at most :math:`2 u^2 \kappa^2 e^{3 - \kappa} \le v / p`. The rest is the proof of
    Bernstein's inequality.

    :param input_dim: the number of columns d of the inputs.
    :param diameter: the diameter :math:`\ell` of the compact set.
    :param slope: :math:`m = E[\|w\| \|A(w)\|]`.
    :param num_features: the number of columns D, even, as that of the scalar map.
    :param epsilon: the error in the operator norm, positive.
    :param variance: v, at least the largest norm of the variance of what a single frequency adds to the estimate.
    :param orlicz_norm: u, or the Orlicz norm of :math:`\|A(w)\|` plus the largest :math:`\|K(\tau)\| / \log 2`.
    :param output_dim: the number p of outputs, or a larger one.
    :param intrinsic_dim: :math:`p_{int}`, at least 1 and the largest trace of that variance divided by v; p by default.
    :returns: a probability, at most 1.
    :raises ValueError: for an odd or bad num_features, another number that is not positive, or an intrinsic dimension
        below 1.

    Source: B Corollary 31, with another concentration inequality; D counts frequencies there.

    >>> constants = curl_free_constants(2, lengthscale=1.0, bounded=False)
    >>> brault_subexponential_failure_probability(2, 2.0, num_features=50_000, epsilon=0.3, **constants)
    0.00097...
    """
    d, count = _checks.positive_integer("input_dim", input_dim), _common.frequencies(num_features)
    factor, rate = _subexponential(d, diameter, slope, epsilon, variance, orlicz_norm, output_dim, intrinsic_dim)
    return _probability(factor, rate, count)


def brault_subexponential_num_features(
    input_dim: int,
    diameter: float,
    slope: float,
    epsilon: float,
    delta: float,
    *,
    variance: float,
    orlicz_norm: float,
    output_dim: int,
    intrinsic_dim: float | None = None,
) -> int:
    r"""Columns with which unbounded operator features are within epsilon on a compact set with probability 1 - delta.

    .. math:: D \ge \frac{16 (v (1 + 1/p) + \kappa u \epsilon / 6)}{\epsilon^2}
        \Big((d + 1) \log\frac{c_d}{\delta} + d \log s + \log\Big(4 \frac{p_{int} + 1}{1 + 1/p}\Big)\Big)

    The inverse of :func:`brault_subexponential_failure_probability`, which defines the constants: the smallest even
    number for which that bound is at most delta.

    :param input_dim: the number of columns d of the inputs.
    :param diameter: the diameter of the compact set.
    :param slope: :math:`m = E[\|w\| \|A(w)\|]`.
    :param epsilon: the error in the operator norm, positive.
    :param delta: the probability of a larger error, between 0 and 1.
    :param variance: v, at least the largest norm of the variance of what a single frequency adds to the estimate.
    :param orlicz_norm: u, at least the Orlicz norm of the error with a single frequency.
    :param output_dim: the number p of outputs, or a larger one.
    :param intrinsic_dim: at least 1 and the largest trace of that variance divided by v; p by default.
    :returns: an even number of columns.
    :raises ValueError: for a number outside of its range, or more than :math:`2^{53}` features.

    Source: B Corollary 31, with another concentration inequality; D counts frequencies there.

    >>> constants = curl_free_constants(2, lengthscale=1.0, bounded=False)
    >>> brault_subexponential_num_features(2, 2.0, epsilon=0.3, delta=0.05, **constants)
    33950
    """
    d = _checks.positive_integer("input_dim", input_dim)
    factor, rate = _subexponential(d, diameter, slope, epsilon, variance, orlicz_norm, output_dim, intrinsic_dim)
    return _columns(factor, rate, delta)


def decomposable_constants(coregionalization: Tensor, mean_norm: float, variance: float = 1.0) -> dict[str, float]:
    r"""Constants of a decomposable kernel :math:`k(\tau) \Gamma` for :func:`brault_bounded_failure_probability`.

    .. math:: m = \|\Gamma\| E\|w\|, \qquad v = \|\Gamma\|^2 \sup_\tau v(\tau), \qquad u = 2 \|\Gamma\|, \qquad
        p_{int} = \frac{\operatorname{tr} \Gamma^2}{\|\Gamma\|^2}

    :param coregionalization: the positive semi-definite matrix Gamma, (p, p), not zero.
    :param mean_norm: :math:`E\|w\|`, at most the square root of the second moment.
    :param variance: at least the largest :func:`rfgp.bounds.fourier_variance` on the compact set, positive; 1/2 does
        for a Gaussian kernel, and 1 for every kernel.
    :returns: the keyword arguments slope, variance, largest_error and intrinsic_dim.
    :raises ValueError: for a bad matrix, or a number that is not positive, or a variance above 1.

    Source: B 4.4.1, corrected.

    >>> decomposable_constants(torch.tensor([[2.0, 1.0], [1.0, 2.0]]), mean_norm=1.5, variance=0.5)
    {'slope': 4.5, 'variance': 4.5, 'largest_error': 6.0, 'intrinsic_dim': 1.111...}
    """
    spectrum = torch.linalg.eigvalsh(_matrix(coregionalization))
    norm = float(spectrum[-1])
    if norm <= 0.0:
        raise ValueError(
            "expected a coregionalization matrix other than zero, whose features make no error; pass another"
        )
    largest = float(_common.within("variance", _common.positive("variance", variance), 0.0))
    return {
        "slope": norm * _common.positive("mean_norm", mean_norm),
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

    with the same m. The variances are the largest norms over all :math:`\tau`, at zero or far away; the first one was
    found on a grid.

    :param input_dim: the number of columns d of the inputs.
    :param lengthscale: l, of the Gaussian kernel.
    :param bounded: whether frequencies come from the trace measure.
    :returns: the keyword arguments of :func:`brault_bounded_failure_probability` (slope, variance, largest_error and
        intrinsic_dim), or of :func:`brault_subexponential_failure_probability` (slope, variance, orlicz_norm and
        output_dim).
    :raises ValueError: for a bad dimension or lengthscale.

    Source: B 4.4.2, 4.4.3; M Eq. 54 for the trace measure.

    >>> curl_free_constants(3, lengthscale=1.0)
    {'slope': 6.383..., 'variance': 2.0, 'largest_error': 4.0, 'intrinsic_dim': 3}
    """
    d, precision, slope = _gaussian(input_dim, lengthscale)
    if _checks.flag("bounded", bounded):
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

    with the m of :func:`curl_free_constants`. The variance of unbounded features at zero is :math:`3 (d - 1) / l^4`, in
    place of the :math:`d (4 d - 3) / l^4` of B. From d = 4 on it is not the largest: far away it is :math:`(d - 1)
    (d + 2) / (2 l^4)`, and less than 1% above that between the two; the bound above was checked on a grid.

    :param input_dim: the number of columns d of the inputs, at least 2.
    :param lengthscale: l, of the Gaussian kernel.
    :param bounded: whether frequencies come from the trace measure.
    :returns: the keyword arguments of :func:`brault_bounded_failure_probability` (slope, variance, largest_error and
        intrinsic_dim), or of :func:`brault_subexponential_failure_probability` (slope, variance, orlicz_norm and
        output_dim).
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
    if _checks.flag("bounded", bounded):
        return _bounded(d, slope, d * (d - 1) / 2.0 * precision**2, (2 * d - 1) * precision)
    return _unbounded(d, slope, (d - 1) * max(3.0, (d + 3) / 2.0) * precision**2, precision, (d - 1) * precision)


def _gaussian(input_dim: int, lengthscale: float) -> tuple[int, float, float]:
    """d, 1/l^2 and E|w|^3; the latter is E[|w| |A(w)|] for all features of curl- and divergence-free kernels."""
    d = _checks.positive_integer("input_dim", input_dim)
    scale = 1.0 / _common.positive("lengthscale", lengthscale)
    return d, scale**2, scale**3 * 2.0**1.5 * math.exp(math.lgamma((d + 3) / 2.0) - math.lgamma(d / 2.0))


def _bounded(d: int, slope: float, variance: float, largest_error: float) -> dict[str, Any]:
    return {"slope": slope, "variance": variance, "largest_error": largest_error, "intrinsic_dim": d}


def _unbounded(d: int, slope: float, variance: float, precision: float, largest_kernel: float) -> dict[str, Any]:
    """The Orlicz norm of |w|^2, whose moment generating function (1 - 2 t/l^2)^(-d/2) is 2 at its inverse."""
    chi_square = -2.0 * precision / math.expm1(-math.log(4.0) / d)
    orlicz_norm = chi_square + largest_kernel / math.log(2.0)
    return {"slope": slope, "variance": variance, "orlicz_norm": orlicz_norm, "output_dim": d}


def _hilbert_schmidt_rate(epsilon: float, largest_norm: float, second_moment: float | None) -> float:
    """Minus the exponent per frequency of the bound on one error in the Hilbert-Schmidt norm."""
    largest = _common.positive("largest_norm", largest_norm)
    moment = largest * largest if second_moment is None else _common.positive("second_moment", second_moment)
    if moment > largest * largest * (1.0 + 1e-9):
        raise ValueError(
            f"expected a second_moment of at most {largest * largest:g}, the square of largest_norm, got {moment:g}; "
            "increase largest_norm"
        )
    return epsilon / (2.0 * largest) * math.log1p(epsilon * (largest / moment))


def _bernstein_rate(epsilon: float, variance: float, largest: float) -> float:
    """Minus the exponent per frequency of the bound on one error in the operator norm."""
    variance, largest = _common.positive("variance", variance), _common.positive("largest_error", largest)
    return 0.5 * epsilon * (epsilon / (variance + largest * epsilon / 3.0))


def _cover(d: int, diameter: float, slope: float, epsilon: float, count: float) -> float:
    """Logarithm of what stands before the exponential function of a uniform bound.

    Differences of inputs lie in a ball of radius l, which (4 l/r)^d balls of radius r cover. An error at a centre
    reaches eps/2 with probability count exp(-rate) at most, and the slope, whose expectation is at most 2 m, reaches
    eps/(2 r) with probability 4 m r/eps at most. The sum of the two is smallest for the r whose power d + 1 is d times
    the quotient of their factors. Where this r exceeds 4 l, the sum exceeds 16 m l/eps, and m is taken so large that
    this is 1 at least.
    """
    log_size = math.log(_common.positive("diameter", diameter)) + math.log(_common.positive("slope", slope))
    log_size += math.log(16.0) - math.log(_common.positive("epsilon", epsilon))
    constant = math.log(d ** (1.0 / (d + 1)) + d ** (-d / (d + 1)))
    return constant + (d * max(0.0, log_size) + math.log(count)) / (d + 1)


def _subexponential(
    d: int,
    diameter: float,
    slope: float,
    epsilon: float,
    variance: float,
    orlicz_norm: float,
    output_dim: int,
    intrinsic_dim: float | None,
) -> tuple[float, float]:
    """Logarithm of what stands before the exponential function, and minus the exponent per frequency."""
    p = _checks.positive_integer("output_dim", output_dim)
    intrinsic = float(p) if intrinsic_dim is None else _at_least_one("intrinsic_dim", intrinsic_dim)
    variance, norm = _common.positive("variance", variance), _common.positive("orlicz_norm", orlicz_norm)
    factor = _cover(d, diameter, slope, epsilon, 4.0 * (intrinsic + 1.0) / (1.0 + 1.0 / p))
    truncation = _truncation(math.log(2.0 * p) + 2.0 * math.log(norm) - math.log(variance))
    return factor, _bernstein_rate(epsilon / 2.0, variance * (1.0 + 1.0 / p), truncation * norm) / (d + 1)


def _truncation(log_ratio: float) -> float:
    """The larger solution of s - 2 log s = 3 + max(0, log_ratio), approached from above."""
    y = 3.0 + max(0.0, log_ratio)
    s = 2.0 * y + 2.0
    for _ in range(60):  # the distance shrinks by 2/s, less than a third, every time
        s = y + 2.0 * math.log(s)
    return s


def _probability(factor: float, rate: float, count: int) -> float:
    return math.exp(min(0.0, factor - rate * count))


def _columns(factor: float, rate: float, delta: float) -> int:
    return _common.even((factor - math.log(_common.probability("delta", delta))) / max(rate, 1e-300))


def _at_least_one(name: str, value: Any) -> float:
    number = _common.positive(name, value)
    if number < 1.0:
        raise ValueError(f"expected a number of at least 1 for {name}, got {value!r}; it is 1 for a matrix of rank one")
    return number


def _matrix(coregionalization: Any) -> Tensor:
    """The matrix in double precision, or raise where it is not symmetric and positive semi-definite."""
    name = "coregionalization"
    gamma = _checks.finite(_checks.inputs(coregionalization, name=name), name).detach().double()
    if gamma.dim() != 2 or gamma.shape[0] != gamma.shape[1]:
        raise ValueError(f"expected a square matrix for {name}, got shape {tuple(gamma.shape)}; pass (p, p)")
    tolerance = 1e-5 * float(gamma.abs().max())  # of matrices in single precision
    is_symmetric = float((gamma - gamma.mT).abs().max()) <= tolerance
    gamma = 0.5 * (gamma + gamma.mT)
    if not is_symmetric or float(torch.linalg.eigvalsh(gamma)[0]) < -tolerance * gamma.shape[0]:
        raise ValueError(f"expected a symmetric positive semi-definite {name}, got another matrix; pass one, as B B^T")
    return gamma
