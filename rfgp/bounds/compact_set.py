"""From one pair of inputs to all pairs of a compact set: a cover by balls, and a bound on the slope of the error."""

from __future__ import annotations

import math

from .. import _checks
from . import _common
from .tail import TailBound


def over_compact_set(pointwise: TailBound, input_dim: int, diameter: float, slope: float) -> TailBound:
    r"""Bound on the largest error on a compact set, from a bound for every single pair of its inputs.

    .. math:: \log C(\epsilon) = \log c_d + \frac{d \log s + \log C_0(\epsilon/2)}{d + 1}, \qquad
        r(\epsilon) = \frac{r_0(\epsilon/2)}{d + 1}

    .. math:: c_d = d^{\frac{1}{d + 1}} + d^{-\frac{d}{d + 1}}, \qquad s = \max\Big(1, \frac{16 m \ell}{\epsilon}\Big)

    Differences of inputs lie in a ball of radius :math:`\ell`, which :math:`(4 \ell / \varrho)^d` balls of radius
    :math:`\varrho` cover. An error at a center reaches :math:`\epsilon/2` with the probability of the pointwise bound
    at most, and the slope, whose expectation is at most 2 m, reaches :math:`\epsilon / (2 \varrho)` with probability
    :math:`4 m \varrho / \epsilon` at most. The sum of the two is smallest for the :math:`\varrho` whose power d + 1 is
    d times the quotient of their factors. Where it exceeds :math:`4 \ell`, the sum exceeds :math:`16 m \ell /
    \epsilon`, and m is taken so large that this is 1 at least.

    :param pointwise: the bound for one pair of inputs, with :math:`C_0` and :math:`r_0`.
    :param input_dim: the number of columns d of the inputs.
    :param diameter: the diameter :math:`\ell` of the compact set of inputs.
    :param slope: m, at least half of the expectation of the largest slope of the error.
    :returns: a bound with numbers.
    :raises ValueError: for a number that is not positive.

    Source: B Corollaries 31 and 32, M Theorem 12, all of them with the maximum.

    >>> hoeffding = TailBound(lambda epsilon: math.log(2.0), lambda epsilon: epsilon**2 / 2.0)
    >>> over_compact_set(hoeffding, input_dim=2, diameter=1.0, slope=1.0).num_features(epsilon=0.2, delta=0.05)
    4071
    """
    _checks.instance("pointwise", pointwise, TailBound, "a TailBound", "such as that of a theorem for one point")
    d = _checks.positive_integer("input_dim", input_dim)
    log_size = math.log(_common.positive("diameter", diameter)) + math.log(_common.positive("slope", slope))
    log_size += math.log(16.0)
    constant = math.log(d ** (1.0 / (d + 1)) + d ** (-d / (d + 1)))

    def log_factor(epsilon: float) -> float:
        return constant + (d * max(0.0, log_size - math.log(epsilon)) + pointwise.log_factor(epsilon / 2.0)) / (d + 1)

    return TailBound(log_factor, lambda epsilon: pointwise.rate(epsilon / 2.0) / (d + 1), pointwise.cos_and_sin)
