"""What the theorems have in common: a factor, and a rate at which the probability of an error falls."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..._support import checks
from . import _common


@dataclass(frozen=True)
class TailBound:
    r"""A bound on the probability of an error that falls exponentially with the number of features.

    .. math:: \Pr[\text{error} \ge \epsilon] \le \min\big(1, C(\epsilon) \, e^{-D \, r(\epsilon)}\big)

    :param log_factor: :math:`\log C` as a function of the error.
    :param rate: r as a function of the error, a number or a float64 tensor; infinite where there is no error.
    :param cos_and_sin: whether a feature is a cos and a sin column of the same frequency, so that D is even.
    :param largest_proven: the largest probability for which the bound is proven.
    :param fewest_proven: the smallest number of columns for which it is proven.

    >>> hoeffding = TailBound(log_factor=lambda epsilon: math.log(2.0), rate=lambda epsilon: epsilon**2 / 2.0)
    >>> hoeffding.failure_probability(1000, epsilon=0.1)
    0.0134...
    >>> hoeffding.num_features(epsilon=0.1, delta=0.05)
    738
    """

    log_factor: Callable[[float], float]
    rate: Callable[[float], float | Tensor]
    cos_and_sin: bool = False
    largest_proven: float = 1.0
    fewest_proven: int = 1

    def failure_probability(self, num_features: int, epsilon: float) -> Any:
        """Upper bound on the probability that the error is epsilon or more: a number or a float64 tensor."""
        columns = _common.columns(num_features, self.cos_and_sin)
        log_factor, rate = self._at(epsilon)
        bound = (log_factor - columns * torch.as_tensor(rate, dtype=torch.float64)).clamp_max(0.0).exp()
        is_proven = (bound <= self.largest_proven) & (columns >= self.fewest_proven)
        return _as(rate, bound.where(is_proven, 1.0))

    def num_features(self, epsilon: float, delta: float) -> Any:
        r"""The smallest number of columns for which the error is below epsilon with probability 1 - delta.

        .. math:: D \ge \frac{1}{r(\epsilon)} \log\frac{C(\epsilon)}{\delta}
        """
        log_factor, rate = self._at(epsilon)
        log_delta = math.log(min(checks.share("delta", delta), self.largest_proven))
        step = 2 if self.cos_and_sin else 1
        needed = (log_factor - log_delta) / (step * torch.as_tensor(rate, dtype=torch.float64))
        return _as(rate, (step * _common.rounded_up(needed)).clamp_min(self.fewest_proven))

    def _at(self, epsilon: float) -> tuple[float, float | Tensor]:
        epsilon = checks.positive("epsilon", epsilon)
        return self.log_factor(epsilon), self.rate(epsilon)


def _as(rate: float | Tensor, result: Tensor) -> Any:
    return result if isinstance(rate, Tensor) else result.item()


def over_compact_set(pointwise: TailBound, input_dim: int, diameter: float, slope: float) -> TailBound:
    r"""Bound on the largest error on a compact set, from a bound for every single pair of its inputs.

    .. math:: \log C(\epsilon) = \log c_d + \frac{d \log s + \log C_0(\epsilon/2)}{d + 1}, \qquad
        r(\epsilon) = \frac{r_0(\epsilon/2)}{d + 1}

    .. math:: c_d = d^{\frac{1}{d + 1}} + d^{-\frac{d}{d + 1}}, \qquad s = \max\Big(1, \frac{16 m \ell}{\epsilon}\Big)

    :param pointwise: the bound for one pair of inputs, with :math:`C_0` and :math:`r_0`.
    :param input_dim: the number of columns d of the inputs.
    :param diameter: the diameter :math:`\ell` of the compact set of inputs.
    :param slope: m, at least half of the expectation of the largest slope of the error.
    :raises ValueError: for a number that is not positive.

    Source: B Corollaries 31 and 32, M Theorem 12, all of them with the maximum.

    >>> hoeffding = TailBound(lambda epsilon: math.log(2.0), lambda epsilon: epsilon**2 / 2.0)
    >>> over_compact_set(hoeffding, input_dim=2, diameter=1.0, slope=1.0).num_features(epsilon=0.2, delta=0.05)
    4071
    """
    checks.instance("pointwise", pointwise, TailBound, "a TailBound", "such as that of a theorem for one point")
    d = checks.positive_integer("input_dim", input_dim)
    log_size = math.log(checks.positive("diameter", diameter)) + math.log(checks.positive("slope", slope))
    log_size += math.log(16.0)
    constant = math.log(d ** (1.0 / (d + 1)) + d ** (-d / (d + 1)))

    def log_factor(epsilon: float) -> float:
        return constant + (d * max(0.0, log_size - math.log(epsilon)) + pointwise.log_factor(epsilon / 2.0)) / (d + 1)

    return TailBound(log_factor, lambda epsilon: pointwise.rate(epsilon / 2.0) / (d + 1), pointwise.cos_and_sin)
