"""Bounds for random Fourier features that hold for all pairs of inputs from a compact set at once."""

from __future__ import annotations

import math

from .. import _checks
from . import _common

_PROVEN_UP_TO = 0.2  # the uniform bounds on kernel values are proven up to here,
_PROVEN_FROM = 8  # for this many columns or more


def rahimi_recht_failure_probability(
    input_dim: int, diameter: float, second_moment: float, num_features: int, epsilon: float
) -> float:
    r"""Rahimi and Recht's bound on the probability that a kernel value on a compact set is missed by epsilon.

    .. math:: \Pr\Big[\sup_{x, y} |\hat k(x, y) - k(x, y)| \ge \epsilon\Big] \le 2^8
        \max\Big(1, \frac{\sigma_p \ell}{\epsilon}\Big)^2 \exp\Big(\frac{-D \epsilon^2}{8 (d + 2)}\Big), \qquad
        \sigma_p^2 = E\|w\|^2

    with D columns, cos and sin for each of D/2 independent frequencies w, and k(0) = 1. Larger than
    :func:`sutherland_schneider_failure_probability`, whose remark on what is proven holds here, too: 1 is returned
    where the right-hand side exceeds 1/5, or D is less than 8. The maximum with 1 is not printed; without it the bound
    needs :math:`\epsilon \le \sigma_p \ell`.

    :param input_dim: the number of columns d of the inputs.
    :param diameter: the diameter :math:`\ell` of the compact set.
    :param second_moment: :math:`E\|w\|^2`; the sum of 1/lengthscale^2 over the d columns for a Gaussian kernel.
    :param num_features: the number of columns D, even.
    :param epsilon: the error, positive.
    :returns: a probability, at most 1.
    :raises ValueError: for an odd or bad num_features, or another number that is not positive.

    Source: Rahimi and Recht (2007), Claim 1; B Theorem 27, where D counts frequencies.

    >>> rahimi_recht_failure_probability(2, diameter=4.0, second_moment=2.0, num_features=50_000, epsilon=0.1)
    0.13413...
    """
    factor, rate = _rahimi_recht(input_dim, diameter, second_moment, epsilon)
    return _uniform_probability(factor, rate, num_features)


def rahimi_recht_num_features(
    input_dim: int, diameter: float, second_moment: float, epsilon: float, delta: float
) -> int:
    r"""Columns with which all kernel values on a compact set are within epsilon, by Rahimi and Recht's bound.

    .. math:: D \ge \frac{8 (d + 2)}{\epsilon^2} \Big(2 \log \max\Big(1, \frac{\sigma_p \ell}{\epsilon}\Big) +
        \log\frac{2^8}{\delta}\Big)

    The inverse of :func:`rahimi_recht_failure_probability`: the smallest even number for which that bound is at most
    delta.

    :param input_dim: the number of columns d of the inputs.
    :param diameter: the diameter :math:`\ell` of the compact set.
    :param second_moment: :math:`E\|w\|^2`; the sum of 1/lengthscale^2 over the d columns for a Gaussian kernel.
    :param epsilon: the error, positive.
    :param delta: the probability of a larger error, between 0 and 1; 1/5 is used for larger ones.
    :returns: an even number of columns.
    :raises ValueError: for a number outside of its range, or more than :math:`2^{53}` features.

    Source: Rahimi and Recht (2007), Claim 1; B Theorem 27, where D counts frequencies.

    >>> rahimi_recht_num_features(2, diameter=4.0, second_moment=2.0, epsilon=0.1, delta=0.05)
    53158
    """
    factor, rate = _rahimi_recht(input_dim, diameter, second_moment, epsilon)
    return _uniform_num_features(factor, rate, delta)


def _rahimi_recht(input_dim: int, diameter: float, second_moment: float, epsilon: float) -> tuple[float, float]:
    """Logarithm of what stands before the exponential function, and minus the exponent per column."""
    input_dim, epsilon = _checks.positive_integer("input_dim", input_dim), _common.positive("epsilon", epsilon)
    factor = 8.0 * math.log(2.0) + 2.0 * max(0.0, _log_size(diameter, second_moment, epsilon))
    return factor, epsilon**2 / (8.0 * (input_dim + 2))


def sutherland_schneider_failure_probability(
    input_dim: int,
    diameter: float,
    second_moment: float,
    num_features: int,
    epsilon: float,
    variance: float = 1.0,
) -> float:
    r"""Sutherland and Schneider's bound on the probability that a kernel value on a compact set is missed by epsilon.

    .. math:: \Pr\Big[\sup_{x, y} |\hat k(x, y) - k(x, y)| \ge \epsilon\Big] \le \beta_d
        \Big(\frac{\sigma_p \ell}{\epsilon}\Big)^{\frac{2 d}{d + 2}}
        \exp\Big(\frac{-D \epsilon^2}{8 (d + 2) \alpha}\Big), \qquad \sigma_p^2 = E\|w\|^2

    .. math:: \alpha = \min\Big(1, \sup_\tau v(\tau) + \tfrac13 \epsilon\Big), \qquad
        \beta_d = \Big(\big(\tfrac d2\big)^{-\frac{d}{d + 2}} + \big(\tfrac d2\big)^{\frac{2}{d + 2}}\Big)
        2^{\frac{6 d + 2}{d + 2}}

    with D columns, cos and sin for each of m = D/2 independent frequencies w, and k(0) = 1. Where the right-hand side b
    exceeds 1/5, or D is less than 8, it is not proven, and 1 is returned. The derivation of the constants needs
    :math:`\Pr[L \ge t] \le \sigma_p^2 / t^2` for the largest slope L of the error, at :math:`t^2 = (1 + 2/d)
    \sigma_p^2 / b`. This would follow from :math:`E L^2 \le \sigma_p^2`, which is false for a single frequency, as the
    place of the largest slope depends on it. But L is at most the mean of :math:`\|w\|` over the frequencies plus its
    expectation, and Cantelli's inequality gives what is needed as soon as :math:`(m - 1) t^2 \ge (4 m - 1) \sigma_p^2`.

    :param input_dim: the number of columns d of the inputs.
    :param diameter: the diameter :math:`\ell` of the compact set.
    :param second_moment: :math:`E\|w\|^2`; the sum of 1/lengthscale^2 over the d columns for a Gaussian kernel.
    :param num_features: the number of columns D, even.
    :param epsilon: the error, positive.
    :param variance: at least the largest :func:`fourier_variance` over :math:`\|\tau\| \le \ell`, from 0 to 1; 1/2
        does for a Gaussian kernel, and 1 for every kernel.
    :returns: a probability, at most 1.
    :raises ValueError: for an odd or bad num_features, a bad variance, or another number that is not positive.

    Source: Sutherland and Schneider (2015), Proposition 1.

    >>> settings = dict(input_dim=2, diameter=4.0, second_moment=2.0, epsilon=0.1)
    >>> sutherland_schneider_failure_probability(num_features=40_000, **settings)
    0.0047...
    >>> sutherland_schneider_failure_probability(num_features=40_000, variance=0.5, **settings)
    8.48...e-08
    """
    factor, rate = _sutherland_schneider(input_dim, diameter, second_moment, epsilon, variance)
    return _uniform_probability(factor, rate, num_features)


def sutherland_schneider_num_features(
    input_dim: int, diameter: float, second_moment: float, epsilon: float, delta: float, variance: float = 1.0
) -> int:
    r"""Columns with which all kernel values on a compact set are within epsilon, by Sutherland and Schneider's bound.

    .. math:: D \ge \frac{8 (d + 2) \alpha}{\epsilon^2} \Big(\frac{2 d}{d + 2} \log\frac{\sigma_p \ell}{\epsilon} +
        \log\frac{\beta_d}{\delta}\Big)

    The inverse of :func:`sutherland_schneider_failure_probability`, which defines the constants: the smallest even
    number for which that bound is at most delta.

    :param input_dim: the number of columns d of the inputs.
    :param diameter: the diameter :math:`\ell` of the compact set.
    :param second_moment: :math:`E\|w\|^2`; the sum of 1/lengthscale^2 over the d columns for a Gaussian kernel.
    :param epsilon: the error, positive.
    :param delta: the probability of a larger error, between 0 and 1; 1/5 is used for larger ones.
    :param variance: at least the largest :func:`fourier_variance` over :math:`\|\tau\| \le \ell`, from 0 to 1; 1/2
        does for a Gaussian kernel, and 1 for every kernel.
    :returns: an even number of columns.
    :raises ValueError: for a number outside of its range, or more than :math:`2^{53}` features.

    Source: Sutherland and Schneider (2015), Proposition 1.

    >>> settings = dict(input_dim=2, diameter=4.0, second_moment=2.0, epsilon=0.1, delta=0.05)
    >>> sutherland_schneider_num_features(**settings)
    32482
    >>> sutherland_schneider_num_features(variance=0.5, **settings)
    17324
    """
    factor, rate = _sutherland_schneider(input_dim, diameter, second_moment, epsilon, variance)
    return _uniform_num_features(factor, rate, delta)


def _sutherland_schneider(
    input_dim: int, diameter: float, second_moment: float, epsilon: float, variance: float
) -> tuple[float, float]:
    """Logarithm of what stands before the exponential function, and minus the exponent per column.

    With m = D/2 frequencies, differences of inputs lie in a ball of radius l, which (4 l/r)^d balls of radius r cover.
    Their centres are off by eps/2 with probability (4 l/r)^d 2 exp(-m eps^2/(8 alpha)) at most (Bernstein, where single
    terms are off by 2 at most, or Hoeffding), and the slope reaches eps/(2 r) with probability (2 r sigma_p/eps)^2. The
    sum of the two is smallest for r^(d + 2) = d/2 times the quotient of their factors. Where this r exceeds 4 l, no
    cover is needed, as the error is zero in the middle of the ball.
    """
    d, epsilon = _checks.positive_integer("input_dim", input_dim), _common.positive("epsilon", epsilon)
    scale = min(1.0, float(_common.within("variance", _checks.number(variance), 0.0)) + epsilon / 3.0)
    half = d / 2.0
    beta = (half ** (-d / (d + 2)) + half ** (2.0 / (d + 2))) * 2.0 ** ((6 * d + 2) / (d + 2))
    factor = math.log(beta) + 2.0 * d / (d + 2) * _log_size(diameter, second_moment, epsilon)
    return factor, epsilon**2 / (8.0 * (d + 2) * scale)


def _log_size(diameter: float, second_moment: float, epsilon: float) -> float:
    diameter, second_moment = _common.positive("diameter", diameter), _common.positive("second_moment", second_moment)
    return math.log(diameter) + 0.5 * math.log(second_moment) - math.log(epsilon)


def _uniform_probability(factor: float, rate: float, num_features: int) -> float:
    columns = 2 * _common.frequencies(num_features)
    bound = math.exp(min(0.0, factor - rate * columns))
    return bound if bound <= _PROVEN_UP_TO and columns >= _PROVEN_FROM else 1.0


def _uniform_num_features(factor: float, rate: float, delta: float) -> int:
    delta = min(_common.probability("delta", delta), _PROVEN_UP_TO)
    return max(_PROVEN_FROM, _common.even(0.5 * (factor - math.log(delta)) / max(rate, 1e-300)))
