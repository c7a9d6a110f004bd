"""Bounds for random Fourier features at a pair of inputs, by the inequalities of Hoeffding and Bernstein."""

from __future__ import annotations

import math

from torch import Tensor

from ..._support import checks
from . import _common
from .tail import TailBound


def fourier_variance(kernel: Tensor, kernel_at_double: Tensor) -> Tensor:
    r"""Variance of what a single frequency adds to a kernel estimate from cos and sin columns.

    .. math:: v(\tau) = \operatorname{Var} \cos(w^\top \tau) = \tfrac12 + \tfrac12 k(2 \tau) - k(\tau)^2

    :param kernel: values :math:`k(\tau)` of a shift-invariant kernel with k(0) = 1, of any shape.
    :param kernel_at_double: its values :math:`k(2 \tau)`, of the same shape.
    :raises ValueError: for values outside of [-1, 1], or shapes that differ.

    Source: T Section 2.1; Sutherland and Schneider (2015).

    >>> import torch
    >>> tau = torch.tensor([0.0, 1.0, 10.0], dtype=torch.float64)
    >>> fourier_variance(torch.exp(-(tau**2) / 2), torch.exp(-((2 * tau) ** 2) / 2))
    tensor([0.0000, 0.1998, 0.5000], dtype=torch.float64)
    """
    value = _common.within("kernel", kernel, -1.0)
    at_double = _common.within("kernel_at_double", kernel_at_double, -1.0)
    if value.shape != at_double.shape:
        raise ValueError(
            f"expected kernel_at_double of shape {tuple(value.shape)}, as kernel has, got {tuple(at_double.shape)}; "
            "evaluate both at the same pairs"
        )
    return (0.5 + 0.5 * at_double - value.square()).clamp(0.0, 1.0)


def fourier_bound(variance: float | Tensor = 1.0) -> TailBound:
    r"""Bound on the error of random Fourier features in one kernel value, by Hoeffding and Bernstein.

    .. math:: \Pr[|\hat k(\tau) - k(\tau)| \ge \epsilon] \le 2 \exp\Big(\frac{-D \epsilon^2}{4 \alpha}\Big), \qquad
        \alpha = \min\big(1, v(\tau) + \tfrac23 \epsilon\big)

    with D columns, cos and sin for each of D/2 independent frequencies, and k(0) = 1.

    :param variance: the variance v of a single frequency, from 0 to 1, of any shape: see :func:`fourier_variance`.
    :raises ValueError: for a variance outside of [0, 1].

    Source: Rahimi and Recht (2007); Sutherland and Schneider (2015).

    >>> import torch
    >>> bound = fourier_bound(variance=torch.tensor([0.0, 0.2, 1.0], dtype=torch.float64))
    >>> bound.failure_probability(1000, epsilon=0.1)
    tensor([1.0351e-16, 1.6964e-04, 1.6417e-01], dtype=torch.float64)
    """
    largest = _common.within("variance", variance, 0.0)
    return TailBound(
        log_factor=lambda epsilon: math.log(2.0),
        rate=lambda epsilon: epsilon**2 / (4.0 * (largest + 2.0 * epsilon / 3.0).clamp_max(1.0)),
        cos_and_sin=True,
    )


_PROVEN_UP_TO = 0.2  # the uniform bounds on kernel values are proven up to here,
_PROVEN_FROM = 8  # for this many columns or more


def rahimi_recht_bound(input_dim: int, diameter: float, second_moment: float) -> TailBound:
    r"""Rahimi and Recht's bound on the largest error of random Fourier features on a compact set.

    .. math:: \Pr\Big[\sup_{x, y} |\hat k(x, y) - k(x, y)| \ge \epsilon\Big] \le 2^8
        \max\Big(1, \frac{\sigma_p \ell}{\epsilon}\Big)^2 \exp\Big(\frac{-D \epsilon^2}{8 (d + 2)}\Big), \qquad
        \sigma_p^2 = E\|w\|^2

    with D columns, cos and sin for each of D/2 independent frequencies w, and k(0) = 1. The bound is not proven, and
    the probability is 1, where the right-hand side exceeds 1/5 or D is less than 8.

    :param input_dim: the number of columns d of the inputs.
    :param diameter: the diameter :math:`\ell` of the compact set.
    :param second_moment: :math:`E\|w\|^2`; the sum of 1/lengthscale^2 over the d columns for a Gaussian kernel.
    :raises ValueError: for a number that is not positive.

    Source: Rahimi and Recht (2007), Claim 1; B Theorem 27, where D counts frequencies.

    >>> bound = rahimi_recht_bound(2, diameter=4.0, second_moment=2.0)
    >>> bound.failure_probability(50_000, epsilon=0.1)
    0.13413...
    """
    d, log_size = checks.positive_integer("input_dim", input_dim), _log_size(diameter, second_moment)
    return TailBound(
        log_factor=lambda epsilon: 8.0 * math.log(2.0) + 2.0 * max(0.0, log_size - math.log(epsilon)),
        rate=lambda epsilon: epsilon**2 / (8.0 * (d + 2)),
        cos_and_sin=True,
        largest_proven=_PROVEN_UP_TO,
        fewest_proven=_PROVEN_FROM,
    )


def sutherland_schneider_bound(
    input_dim: int, diameter: float, second_moment: float, variance: float = 1.0
) -> TailBound:
    r"""Sutherland and Schneider's bound on the largest error of random Fourier features on a compact set.

    .. math:: \Pr\Big[\sup_{x, y} |\hat k(x, y) - k(x, y)| \ge \epsilon\Big] \le \beta_d
        \Big(\frac{\sigma_p \ell}{\epsilon}\Big)^{\frac{2 d}{d + 2}}
        \exp\Big(\frac{-D \epsilon^2}{8 (d + 2) \alpha}\Big), \qquad \sigma_p^2 = E\|w\|^2

    .. math:: \alpha = \min\Big(1, \sup_\tau v(\tau) + \tfrac13 \epsilon\Big), \qquad
        \beta_d = \Big(\big(\tfrac d2\big)^{-\frac{d}{d + 2}} + \big(\tfrac d2\big)^{\frac{2}{d + 2}}\Big)
        2^{\frac{6 d + 2}{d + 2}}

    with D columns, cos and sin for each of D/2 independent frequencies w, and k(0) = 1. The bound is not proven, and
    the probability is 1, where the right-hand side exceeds 1/5 or D is less than 8. Other parameters are those of
    :func:`rahimi_recht_bound`.

    :param variance: at least the largest :func:`fourier_variance` over :math:`\|\tau\| \le \ell`, from 0 to 1; 1/2
        does for a Gaussian kernel, and 1 for every kernel.
    :raises ValueError: for a bad variance, or another number that is not positive.

    Source: Sutherland and Schneider (2015), Proposition 1.

    >>> bound = sutherland_schneider_bound(2, diameter=4.0, second_moment=2.0, variance=0.5)
    >>> bound.failure_probability(40_000, epsilon=0.1), bound.num_features(epsilon=0.1, delta=0.05)
    (8.48...e-08, 17324)
    """
    d, log_size = checks.positive_integer("input_dim", input_dim), _log_size(diameter, second_moment)
    largest = float(_common.within("variance", checks.number(variance), 0.0))
    half = d / 2.0
    beta = (half ** (-d / (d + 2)) + half ** (2.0 / (d + 2))) * 2.0 ** ((6 * d + 2) / (d + 2))
    return TailBound(
        log_factor=lambda epsilon: math.log(beta) + 2.0 * d / (d + 2) * (log_size - math.log(epsilon)),
        rate=lambda epsilon: epsilon**2 / (8.0 * (d + 2) * min(1.0, largest + epsilon / 3.0)),
        cos_and_sin=True,
        largest_proven=_PROVEN_UP_TO,
        fewest_proven=_PROVEN_FROM,
    )


def _log_size(diameter: float, second_moment: float) -> float:
    """The logarithm of sigma_p l."""
    return math.log(checks.positive("diameter", diameter)) + 0.5 * math.log(
        checks.positive("second_moment", second_moment)
    )
