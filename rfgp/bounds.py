"""Probabilistic error bounds: how likely an error is with D features, and how many features keep it unlikely.

Every bound comes in two forms: the probability of failure for a number of features, and the number of features for an
error epsilon and a probability delta. Pointwise bounds hold for a single pair of inputs
(:func:`rademacher_failure_probability`, :func:`fourier_failure_probability`); uniform bounds hold for all pairs from a
compact set at once (:func:`rahimi_recht_failure_probability`, :func:`sutherland_schneider_failure_probability`,
:func:`derivative_failure_probability`). ``num_features`` is the number of columns that come out; for Fourier features
these are the cos and sin columns, two per frequency. All features have to be independent: neither orthogonal nor
structured ones are covered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import _checks

_MOST_FEATURES = 2**53  # beyond, float64 does not know every integer
_PROVEN_UP_TO = 0.2  # the uniform bounds on kernel values are proven up to here,
_PROVEN_FROM = 8  # for this many columns or more


def rademacher_failure_probability(
    x: Tensor, y: Tensor, degree: int, num_features: int, epsilon: float, is_complex: bool = False
) -> Tensor:
    r"""Upper bound on the probability that a Rademacher sketch misses :math:`(x^\top y)^p` by a relative epsilon.

    .. math:: \Pr\big[|\hat k(x, y) - (x^\top y)^p| \ge \epsilon \|x\|_1^p \|y\|_1^p\big]
        \le 2 \exp\Big(\frac{-D \epsilon^2 / 2}{\sigma^2 + 2 \epsilon / 3}\Big), \qquad
        \sigma^2 = \frac{V}{\|x\|_1^{2p} \|y\|_1^{2p}}

    V is the variance of a single feature,

    .. math:: V = \Big(\|x\|^2 \|y\|^2 + c \Big((x^\top y)^2 - \sum_k x_k^2 y_k^2\Big)\Big)^p - (x^\top y)^{2p}

    with c = 2 for real and 1 for complex weights. For a complex sketch the error is the modulus of a complex number,
    which bounds the error of the real part, too. The thesis takes Bernstein's inequality for real variables there. The
    same inequality holds for the modulus, with the complex variance and without another factor: independent complex
    :math:`X_i` of mean zero satisfy

    .. math:: E \cosh\Big(\lambda \Big|\sum_i X_i\Big|\Big)
        \le \exp\Big(\sum_i E\big[e^{\lambda |X_i|} - 1 - \lambda |X_i|\big]\Big)

    (Pinelis, 1994), and the rest of the usual proof stays. The thesis states its theorem with :math:`V / (\|x\|^{2p}
    \|y\|^{2p})` in place of :math:`\sigma^2`, which is larger; its proof shows the bound above.

    :param x: inputs (..., N, d).
    :param y: inputs (..., M, d).
    :param degree: the degree p of the kernel.
    :param num_features: the number of columns D of the sketch, complex columns where it is complex.
    :param epsilon: the error relative to the largest value that a single feature can take; positive.
    :param is_complex: whether the weights are fourth roots of unity, in place of signs.
    :returns: float64 probabilities (..., N, M), at most 1; 0 where one of the inputs is zero.
    :raises ValueError: for bad inputs, degree, num_features or epsilon.

    Source: T Theorem 3.4.1, Eq. B.4.

    >>> x = torch.tensor([[0.5, 0.5]])
    >>> rademacher_failure_probability(x, x, degree=2, num_features=1000, epsilon=0.1)
    tensor([[5.7218e-09]], dtype=torch.float64)
    """
    columns = _checks.positive_integer("num_features", num_features)
    epsilon = _positive("epsilon", epsilon)
    variance, is_zero = _rademacher_variance(x, y, degree, is_complex)
    bound = 2.0 * torch.exp(-columns * epsilon**2 / 2.0 / (variance + 2.0 * epsilon / 3.0))
    return bound.clamp_max(1.0).masked_fill(is_zero, 0.0)


def rademacher_num_features(
    x: Tensor, y: Tensor, degree: int, epsilon: float, delta: float, is_complex: bool = False
) -> Tensor:
    r"""Features with which a Rademacher sketch is within a relative epsilon with probability 1 - delta or more.

    .. math:: D \ge 2 \Big(\frac{2}{3 \epsilon} + \frac{\sigma^2}{\epsilon^2}\Big) \log\frac{2}{\delta}

    The inverse of :func:`rademacher_failure_probability`, which defines :math:`\sigma^2`: the smallest integer for
    which that bound is at most delta.

    :param x: inputs (..., N, d).
    :param y: inputs (..., M, d).
    :param degree: the degree p of the kernel.
    :param epsilon: the error relative to :math:`\|x\|_1^p \|y\|_1^p`; positive.
    :param delta: the probability of a larger error, between 0 and 1.
    :param is_complex: whether the weights are fourth roots of unity, in place of signs.
    :returns: int64 numbers of columns (..., N, M); 1 where one of the inputs is zero.
    :raises ValueError: for bad inputs, degree, epsilon or delta, or more than :math:`2^{53}` features.

    Source: T Eq. 3.21, with the smaller :math:`\sigma^2` of :func:`rademacher_failure_probability`.

    >>> x = torch.tensor([[0.5, 0.5]])
    >>> rademacher_num_features(x, x, degree=2, epsilon=0.1, delta=0.05)
    tensor([[188]])
    """
    epsilon, delta = _positive("epsilon", epsilon), _probability("delta", delta)
    variance, is_zero = _rademacher_variance(x, y, degree, is_complex)
    needed = 2.0 * (2.0 / (3.0 * epsilon) + variance / epsilon**2) * math.log(2.0 / delta)
    return _rounded_up(needed).masked_fill(is_zero, 1)


def _rademacher_variance(x: Tensor, y: Tensor, degree: int, is_complex: bool) -> tuple[Tensor, Tensor]:
    """Variance of one feature for inputs scaled to 1-norm one, and where an input is zero; two (..., N, M) tensors."""
    degree = _checks.positive_integer("degree", degree)
    _checks.finite(_checks.inputs(x))
    _checks.finite(_checks.inputs(y, x.shape[-1], "y"), "y")
    _checks.same_kind(y, x, "y", "x")
    x, y = _scaled(x), _scaled(y)
    inner = (x @ y.mT).square()
    norms = x.square().sum(-1)[..., :, None] * y.square().sum(-1)[..., None, :]
    mixed = inner - x.square() @ y.square().mT
    second_moment = (norms + (1.0 if is_complex else 2.0) * mixed) ** degree
    return (second_moment - inner**degree).clamp_min(0.0), norms == 0.0


def _scaled(x: Tensor) -> Tensor:
    x = x.double()
    norm = x.abs().sum(-1, keepdim=True)
    return x / norm.masked_fill(norm == 0.0, 1.0)


def fourier_variance(kernel: Tensor, kernel_at_double: Tensor) -> Tensor:
    r"""Variance of what a single frequency adds to a kernel estimate from cos and sin columns.

    .. math:: v(\tau) = \operatorname{Var} \cos(w^\top \tau) = \tfrac12 + \tfrac12 k(2 \tau) - k(\tau)^2

    At most 1 for every kernel, and at most 1/2 for the Gaussian kernel, where it is :math:`(1 - k(\tau)^2)^2 / 2`.

    :param kernel: values :math:`k(\tau)` of a shift-invariant kernel with k(0) = 1, of any shape.
    :param kernel_at_double: its values :math:`k(2 \tau)`, of the same shape.
    :returns: a float64 tensor of that shape.
    :raises ValueError: for values outside of [-1, 1], or shapes that differ.

    Source: T Section 2.1; Sutherland and Schneider (2015).

    >>> tau = torch.tensor([0.0, 1.0, 10.0], dtype=torch.float64)
    >>> fourier_variance(torch.exp(-(tau**2) / 2), torch.exp(-((2 * tau) ** 2) / 2))
    tensor([0.0000, 0.1998, 0.5000], dtype=torch.float64)
    """
    value, at_double = _within("kernel", kernel, -1.0), _within("kernel_at_double", kernel_at_double, -1.0)
    if value.shape != at_double.shape:
        raise ValueError(
            f"expected kernel_at_double of shape {tuple(value.shape)}, as kernel has, got {tuple(at_double.shape)}; "
            "evaluate both at the same pairs"
        )
    return (0.5 + 0.5 * at_double - value.square()).clamp(0.0, 1.0)


def fourier_failure_probability(num_features: int, epsilon: float, variance: float | Tensor = 1.0) -> Tensor:
    r"""Upper bound on the probability that random Fourier features miss one kernel value by epsilon.

    .. math:: \Pr[|\hat k(\tau) - k(\tau)| \ge \epsilon] \le 2 \exp\Big(\frac{-D \epsilon^2}{4 \alpha}\Big), \qquad
        \alpha = \min\big(1, v(\tau) + \tfrac23 \epsilon\big)

    with D columns, cos and sin for each of D/2 independent frequencies, and k(0) = 1. The inequality is Hoeffding's
    where :math:`\alpha = 1`, as it is without a variance, and Bernstein's elsewhere.

    :param num_features: the number of columns D, even.
    :param epsilon: the error, positive.
    :param variance: the variance v of a single frequency, from 0 to 1, of any shape: see :func:`fourier_variance`.
    :returns: float64 probabilities of the shape of ``variance``, at most 1.
    :raises ValueError: for an odd or bad num_features, or a bad epsilon or variance.

    Source: Rahimi and Recht (2007); Sutherland and Schneider (2015).

    >>> fourier_failure_probability(1000, 0.1, variance=torch.tensor([0.0, 0.2, 1.0], dtype=torch.float64))
    tensor([1.0351e-16, 1.6964e-04, 1.6417e-01], dtype=torch.float64)
    """
    columns, epsilon = 2 * _frequencies(num_features), _positive("epsilon", epsilon)
    scale = _fourier_scale(variance, epsilon)
    return (2.0 * torch.exp(-columns * epsilon**2 / (4.0 * scale))).clamp_max(1.0)


def fourier_num_features(epsilon: float, delta: float, variance: float | Tensor = 1.0) -> Tensor:
    r"""Columns with which random Fourier features are within epsilon of one kernel value with probability 1 - delta.

    .. math:: D \ge \frac{4 \alpha}{\epsilon^2} \log\frac{2}{\delta}, \qquad
        \alpha = \min\big(1, v(\tau) + \tfrac23 \epsilon\big)

    The inverse of :func:`fourier_failure_probability`: the smallest even number for which that bound is at most delta.

    :param epsilon: the error, positive.
    :param delta: the probability of a larger error, between 0 and 1.
    :param variance: the variance v of a single frequency, from 0 to 1, of any shape: see :func:`fourier_variance`.
    :returns: int64 numbers of columns, even, of the shape of ``variance``.
    :raises ValueError: for a bad epsilon, delta or variance, or more than :math:`2^{53}` features.

    Source: Rahimi and Recht (2007); Sutherland and Schneider (2015).

    >>> fourier_num_features(0.1, 0.05, variance=torch.tensor([0.0, 0.2, 1.0]))
    tensor([  100,  394,  1476])
    """
    epsilon, delta = _positive("epsilon", epsilon), _probability("delta", delta)
    return 2 * _rounded_up(2.0 * _fourier_scale(variance, epsilon) / epsilon**2 * math.log(2.0 / delta))


def _fourier_scale(variance: float | Tensor, epsilon: float) -> Tensor:
    return (_within("variance", variance, 0.0) + 2.0 * epsilon / 3.0).clamp_max(1.0)


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
    input_dim, epsilon = _checks.positive_integer("input_dim", input_dim), _positive("epsilon", epsilon)
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
    d, epsilon = _checks.positive_integer("input_dim", input_dim), _positive("epsilon", epsilon)
    scale = min(1.0, float(_within("variance", float(variance), 0.0)) + epsilon / 3.0)
    half = d / 2.0
    beta = (half ** (-d / (d + 2)) + half ** (2.0 / (d + 2))) * 2.0 ** ((6 * d + 2) / (d + 2))
    factor = math.log(beta) + 2.0 * d / (d + 2) * _log_size(diameter, second_moment, epsilon)
    return factor, epsilon**2 / (8.0 * (d + 2) * scale)


def _log_size(diameter: float, second_moment: float, epsilon: float) -> float:
    diameter, second_moment = _positive("diameter", diameter), _positive("second_moment", second_moment)
    return math.log(diameter) + 0.5 * math.log(second_moment) - math.log(epsilon)


def _uniform_probability(factor: float, rate: float, num_features: int) -> float:
    columns = 2 * _frequencies(num_features)
    bound = math.exp(min(0.0, factor - rate * columns))
    return bound if bound <= _PROVEN_UP_TO and columns >= _PROVEN_FROM else 1.0


def _uniform_num_features(factor: float, rate: float, delta: float) -> int:
    delta = min(_probability("delta", delta), _PROVEN_UP_TO)
    return max(_PROVEN_FROM, _even(0.5 * (factor - math.log(delta)) / max(rate, 1e-300)))


class _Derivative(NamedTuple):
    """S, main theorem: the error is below slow/sqrt(m) + fast/m + scale (24 sqrt(6 t/m) + 36 K t/m)."""

    scale: float  # sigma_{p,q}
    growth: float  # K
    slow: float
    fast: float


def derivative_error_bound(
    p: Sequence[int],
    q: Sequence[int],
    diameter: float,
    num_features: int,
    delta: float,
    *,
    lengthscale: float | Sequence[float] | Tensor | None = None,
    second_moment: float | None = None,
) -> float:
    r"""Error that kernel derivatives from random Fourier features stay below with probability 1 - delta.

    .. math:: \sup_{x, y} |\partial^{p,q} k - \widehat{\partial^{p,q} k}| < \sigma_{p,q} \Big(
        \frac{C_3 \sqrt{d \log(16 \ell C_{p,q} + 4)} + C_1 + 24 \sqrt{6 t}}{\sqrt m} +
        \frac{36 K (\log 2 + 1 + t)}{m}\Big), \qquad t = \log\frac{2}{\delta}

    .. math:: \sigma_{p,q}^2 = E[w^{2(p+q)}], \quad C_{p,q}^2 = \frac{E[w^{2(p+q)} \|w\|^2]}{\sigma_{p,q}^2}, \quad
        C_1 = 14 \sqrt{6 \log 2} + 1, \quad C_3 = 7 \sqrt 6 \Big(1 + \frac{\sqrt\pi}{(\log 2)^{3/2}}\Big)

    for all x and y of a compact set, with cos and sin columns for each of m = D/2 independent frequencies w, and k(0)
    normalised to 1. The moments have to satisfy :math:`E|w^{p+q}|^n \le \sigma_{p,q}^n K^{n-2} n!/2` for all n from 2
    and a K from 1 up. K is 1 for kernel values, for first derivatives of a Gaussian kernel and for second ones in two
    coordinates, and :math:`2/\sqrt 3` for second derivatives in a single coordinate (S has 2). No K exists for higher
    derivatives of a Gaussian kernel, nor for any derivative of a Matérn kernel.

    The bound grows slowly with the diameter, but its constants, which S takes from van de Geer and Lederer (2013),
    Theorem 8, are large: it is never below :math:`150 \sigma_{p,q}/\sqrt m`, hundreds of times what errors are.

    :param p: d orders of derivatives with respect to the columns of x; all zero for kernel values.
    :param q: d orders of derivatives with respect to the columns of y.
    :param diameter: the diameter :math:`\ell` of the compact set.
    :param num_features: the number of columns D, even.
    :param delta: the probability of a larger error, between 0 and 1.
    :param lengthscale: of a Gaussian kernel, one or d of them.
    :param second_moment: :math:`E\|w\|^2` of another kernel, in place of the lengthscale; for kernel values only.
    :returns: the error.
    :raises ValueError: for derivatives without a K, for both or neither of ``lengthscale`` and ``second_moment``, or
        for a number outside of its range.

    Source: S, main theorem, Eq. 15, 16.

    >>> derivative_error_bound([0, 0], [0, 0], 4.0, 100_000, 0.05, lengthscale=1.0)
    1.58...
    >>> derivative_error_bound([1, 0], [0, 0], 4.0, 100_000, 0.05, lengthscale=[0.5, 1.0])
    3.34...
    """
    m, t = _frequencies(num_features), math.log(2.0 / _probability("delta", delta))
    c = _derivative(p, q, diameter, lengthscale, second_moment)
    slow, fast = _with_probability(c, t)
    return slow / math.sqrt(m) + fast / m


def derivative_failure_probability(
    p: Sequence[int],
    q: Sequence[int],
    diameter: float,
    num_features: int,
    epsilon: float,
    *,
    lengthscale: float | Sequence[float] | Tensor | None = None,
    second_moment: float | None = None,
) -> float:
    r"""Upper bound on the probability that some kernel derivative on a compact set is missed by epsilon.

    .. math:: \Pr\Big[\sup_{x, y} |\partial^{p,q} k - \widehat{\partial^{p,q} k}| \ge \epsilon\Big] \le 2 e^{-t}

    with the t for which :func:`derivative_error_bound` gives epsilon, which is a quadratic equation in :math:`\sqrt t`.
    It is 1 as long as epsilon is below about :math:`150 \sigma_{p,q} / \sqrt m`.

    :param p: d orders of derivatives with respect to the columns of x; all zero for kernel values.
    :param q: d orders of derivatives with respect to the columns of y.
    :param diameter: the diameter of the compact set.
    :param num_features: the number of columns D = 2 m, even.
    :param epsilon: the error, positive.
    :param lengthscale: of a Gaussian kernel, one or d of them.
    :param second_moment: :math:`E\|w\|^2` of another kernel, in place of the lengthscale; for kernel values only.
    :returns: a probability, at most 1.
    :raises ValueError: as :func:`derivative_error_bound` does, and where epsilon is not positive.

    Source: S, main theorem, Eq. 15, 16.

    >>> derivative_failure_probability([1, 0], [1, 0], 4.0, 1_000_000, 1.0, lengthscale=1.0)
    0.0018...
    """
    m, epsilon = _frequencies(num_features), _positive("epsilon", epsilon)
    c = _derivative(p, q, diameter, lengthscale, second_moment)
    left = epsilon - c.slow / math.sqrt(m) - c.fast / m
    if left <= 0.0:
        return 1.0
    root = _positive_root(36.0 * c.growth * c.scale / m, 24.0 * math.sqrt(6.0 / m) * c.scale, left)
    return min(1.0, 2.0 * math.exp(-(root**2)))


def derivative_num_features(
    p: Sequence[int],
    q: Sequence[int],
    diameter: float,
    epsilon: float,
    delta: float,
    *,
    lengthscale: float | Sequence[float] | Tensor | None = None,
    second_moment: float | None = None,
) -> int:
    r"""Columns with which all kernel derivatives on a compact set are within epsilon with probability 1 - delta.

    .. math:: D = 2 m, \qquad \frac{a}{\sqrt m} + \frac{b}{m} \le \epsilon

    with the left-hand side of :func:`derivative_error_bound`: the smallest even number for which that error is at most
    epsilon. This takes more than :math:`2 (150 \sigma_{p,q} / \epsilon)^2` columns.

    :param p: d orders of derivatives with respect to the columns of x; all zero for kernel values.
    :param q: d orders of derivatives with respect to the columns of y.
    :param diameter: the diameter of the compact set.
    :param epsilon: the error, positive.
    :param delta: the probability of a larger error, between 0 and 1.
    :param lengthscale: of a Gaussian kernel, one or d of them.
    :param second_moment: :math:`E\|w\|^2` of another kernel, in place of the lengthscale; for kernel values only.
    :returns: an even number of columns.
    :raises ValueError: as :func:`derivative_error_bound` does, where epsilon is not positive, or for more than
        :math:`2^{53}` features.

    Source: S, main theorem, Eq. 15, 16.

    >>> derivative_num_features([0, 0], [0, 0], 4.0, 0.1, 0.05, lengthscale=1.0)
    24932572
    """
    epsilon, t = _positive("epsilon", epsilon), math.log(2.0 / _probability("delta", delta))
    slow, fast = _with_probability(_derivative(p, q, diameter, lengthscale, second_moment), t)
    root = 1.0 / _positive_root(fast, slow, epsilon)
    return _even(root * root)


def _with_probability(c: _Derivative, t: float) -> tuple[float, float]:
    return c.slow + 24.0 * math.sqrt(6.0 * t) * c.scale, c.fast + 36.0 * c.growth * t * c.scale


def _positive_root(a: float, b: float, c: float) -> float:
    """The positive root of a u^2 + b u = c, for positive a, b and c."""
    return 2.0 * c / (b + math.sqrt(b**2 + 4.0 * a * c))


def _derivative(
    p: Sequence[int],
    q: Sequence[int],
    diameter: float,
    lengthscale: float | Sequence[float] | Tensor | None,
    second_moment: float | None,
) -> _Derivative:
    orders = _orders(p, q)
    if (lengthscale is None) == (second_moment is None):
        raise ValueError(
            f"expected one of lengthscale and second_moment, got {'neither' if lengthscale is None else 'both'}; pass "
            "lengthscale for a Gaussian kernel, and second_moment for values of another one"
        )
    if second_moment is not None:
        if any(orders):
            raise ValueError(
                f"expected p = q = 0 with a second_moment, got p + q = {orders}; only frequencies of a Gaussian kernel "
                "are known to have moments that grow slowly enough (those of a Matérn kernel are infinite): pass its "
                "lengthscale"
            )
        scale, growth, lipschitz = 1.0, 1.0, math.sqrt(_positive("second_moment", second_moment))
    else:
        scale, growth, lipschitz = _gaussian_moments(orders, lengthscale)
    entropy = len(orders) * math.log(16.0 * _positive("diameter", diameter) * lipschitz + 4.0)
    log2 = math.log(2.0)
    chaining = 7.0 * math.sqrt(6.0) * (1.0 + math.sqrt(math.pi) / log2**1.5) * math.sqrt(entropy)
    slow = scale * (chaining + 14.0 * math.sqrt(6.0 * log2) + 1.0)
    return _Derivative(scale, growth, slow, scale * 36.0 * growth * (log2 + 1.0))


def _gaussian_moments(orders: list[int], lengthscale: Any) -> tuple[float, float, float]:
    """sigma_{p,q}, K and C_{p,q} for independent frequencies N(0, 1/lengthscale^2) and r = p + q.

    For a square, K^2 = 4/3 turns the condition on the moments into binom(2n, n) <= 3/8 4^n; for a product of two, K = 1
    turns it into Gamma((n + 1)/2) <= sqrt(pi)/2 Gamma(n/2 + 1). Both are equalities at n = 2, and slack beyond.
    """
    if sum(orders) > 2:
        raise ValueError(
            f"expected derivatives of total order 2 at most, got p + q = {orders}; the moments of products of three or "
            "more Gaussian frequencies grow faster than n! K^n, which the bound does not allow"
        )
    values = torch.as_tensor(lengthscale, dtype=torch.float64).flatten().tolist()
    scales = [_positive("lengthscale", value) for value in values]
    if len(scales) not in (1, len(orders)):
        raise ValueError(f"expected 1 or {len(orders)} lengthscales, got {len(scales)}; pass one per column of x")
    scales = scales * (len(orders) // len(scales))
    is_square = max(orders) == 2
    scale = math.sqrt(3.0 if is_square else 1.0) / math.prod(s**r for s, r in zip(scales, orders, strict=True))
    lipschitz = math.sqrt(sum((2 * r + 1) / s**2 for s, r in zip(scales, orders, strict=True)))
    return scale, 2.0 / math.sqrt(3.0) if is_square else 1.0, lipschitz


def _orders(p: Any, q: Any) -> list[int]:
    """The sum of two multi-indices."""
    values = []
    for name, index in (("p", p), ("q", q)):
        entries = index.tolist() if isinstance(index, Tensor) else index
        is_index = isinstance(entries, Sequence) and len(entries) > 0
        if not is_index or not all(type(entry) is int and entry >= 0 for entry in entries):
            raise ValueError(f"expected d non-negative integers for {name}, got {index!r}; pass one order per column")
        values.append(list(entries))
    if len(values[0]) != len(values[1]):
        raise ValueError(
            f"expected as many orders in p as in q, got {len(values[0])} and {len(values[1])}; pass one per column"
        )
    return [left + right for left, right in zip(*values, strict=True)]


def _positive(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise where it is not a positive finite number."""
    number = _number(value)
    if not 0.0 < number < math.inf:
        raise ValueError(f"expected a positive finite number for {name}, got {value!r}; choose another {name}")
    return number


def _probability(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise where it is not between 0 and 1."""
    number = _number(value)
    if not 0.0 < number < 1.0:
        raise ValueError(f"expected a number between 0 and 1 for {name}, got {value!r}; choose another {name}")
    return number


def _number(value: Any) -> float:
    """``value`` as a float, and NaN where it is no number."""
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _within(name: str, value: Any, smallest: float) -> Tensor:
    """Return ``value`` as a float64 tensor, or raise where it has entries outside of [smallest, 1]."""
    tensor = torch.as_tensor(value, dtype=torch.float64)
    rounding = 1e-6  # of kernel values in single precision
    if not bool(((tensor >= smallest - rounding) & (tensor <= 1.0 + rounding)).all()):
        raise ValueError(
            f"expected numbers from {smallest:g} to 1 for {name}, got {float(tensor.min()):g} to "
            f"{float(tensor.max()):g}; divide by k(0), or by its square where it is a variance"
        )
    return tensor.clamp(smallest, 1.0)


def _frequencies(num_features: Any) -> int:
    """The number of frequencies behind that many cos and sin columns, or raise where it is no whole number."""
    columns = _checks.positive_integer("num_features", num_features)
    if columns % 2:
        raise ValueError(
            f"expected an even num_features, a cos and a sin column for each frequency, got {columns}; add one"
        )
    return columns // 2


def _rounded_up(needed: Tensor) -> Tensor:
    """The smallest positive integers from ``needed`` up."""
    if not bool((needed < _MOST_FEATURES / 2).all()):
        raise ValueError(_too_many(float(needed.max())))
    return needed.ceil().clamp_min(1.0).long()


def _even(needed: float) -> int:
    """Twice the smallest positive integer from ``needed`` up."""
    if not needed < _MOST_FEATURES / 2:
        raise ValueError(_too_many(needed))
    return 2 * max(1, math.ceil(needed))


def _too_many(needed: float) -> str:
    return f"expected an epsilon and a delta that 2^53 features can reach, got a need of {needed:g}; choose larger ones"
