"""Variances and class probabilities that are put right on held-out rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import scipy
import torch
from torch import Tensor
from torch.distributions import Normal

from .._support import checks
from .classes import check_range, checked_probabilities
from .scores import normal_marginals, observed

_LARGEST = 1e3


@dataclass(frozen=True)
class VarianceScale:
    """A factor of predictive variances; call it with a distribution.

    :raises ValueError: for a factor that is not positive and finite.

    >>> VarianceScale(4.0)(torch.distributions.Normal(torch.zeros(1), torch.ones(1))).stddev
    tensor([2.], dtype=torch.float64)
    """

    factor: float

    def __post_init__(self) -> None:
        checks.positive("factor", self.factor)

    def __call__(self, predictive: Any) -> Normal:
        """Normal marginals with the variances that are put right, in float64."""
        mean, std = normal_marginals(predictive)
        return Normal(mean, std * math.sqrt(self.factor))


def recalibrate_variance(predictive: Any, y: Tensor) -> VarianceScale:
    r"""The factor of all variances with the best log density on held-out rows, :math:`\frac1N \sum (y - m)^2 / v`.

    :param predictive: a normal distribution of rows that the model was not fitted to, with its noise.
    :param y: their targets, of the same shape; NaN where a target is missing.
    :raises ValueError: where shapes disagree, a variance is not positive, or all targets equal their predictions.

    >>> held_out = torch.distributions.Normal(torch.zeros(2), torch.ones(2))
    >>> recalibrate_variance(held_out, torch.tensor([2.0, -2.0])).factor
    4.0
    """
    mean, std, targets = observed(predictive, y)
    factor = float(((targets - mean) / std).detach().square().mean())
    if not factor > 0.0:
        raise ValueError("expected targets that differ from their predictions, got none; pass held-out rows")
    return VarianceScale(factor)


@dataclass(frozen=True)
class Temperature:
    r"""A temperature of class probabilities, :math:`p_c^{1/T} / \sum_{c'} p_{c'}^{1/T}`; call it with probabilities.

    :param value: T; above 1 probabilities become less extreme.
    :raises ValueError: for a temperature that is not positive and finite, or bad probabilities.

    >>> Temperature(2.0)(torch.tensor([[0.9, 0.1]])).argmax().item()
    0
    """

    value: float

    def __post_init__(self) -> None:
        checks.positive("value", self.value)

    def __call__(self, probabilities: Tensor) -> Tensor:
        """Probabilities (..., C) at this temperature."""
        check_range(probabilities)
        tiny = torch.finfo(probabilities.dtype).tiny
        return torch.softmax(probabilities.clamp_min(tiny).log() / self.value, dim=-1)


def recalibrate_temperature(probabilities: Tensor, labels: Tensor) -> Temperature:
    """The temperature with the best log likelihood on held-out rows.

    :param probabilities: of rows that the model was not fitted to, (N, C), from 0 to 1.
    :param labels: their labels, (N,), integers from 0 to C - 1.
    :raises ValueError: where shapes disagree, or values are out of range.

    Source: Guo et al. (2017).

    >>> held_out = torch.tensor([[0.99, 0.01]] * 10)
    >>> 2.0 < recalibrate_temperature(held_out, torch.tensor([0] * 8 + [1] * 2)).value < 5.0
    True
    """
    codes = checked_probabilities(probabilities, labels)
    exact = probabilities.double()

    def loss(log_value: float) -> float:
        scaled = Temperature(math.exp(log_value))(exact)
        return -float(scaled.gather(-1, codes.unsqueeze(-1)).clamp_min(torch.finfo(torch.float64).tiny).log().mean())

    limit = math.log(_LARGEST)
    return Temperature(math.exp(scipy.optimize.minimize_scalar(loss, bounds=(-limit, limit), method="bounded").x))
