"""Normal values of mean zero whose log variance is the function."""

from __future__ import annotations

import math
from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal, base_distributions
from torch import Tensor

from .._support import checks
from .quadrature import QuadratureLikelihood


class LogVarianceLikelihood(QuadratureLikelihood):
    r"""Normal values with mean zero and the variance exp(f): residuals of input-dependent noise, or returns.

    .. math:: p(e \mid f) = N(e; 0, e^f), \qquad
        E_{f \sim N(m, v)} \log p(e \mid f) = -\tfrac12 \big(\log 2 \pi + m + e^2\, e^{-m + v/2}\big)

    :param num_functions: the number T of independent functions on the same features, for
        :class:`rfgp.models.WeightSpaceVariationalGP`; default: one.
    :raises ValueError: for a number that is not a positive integer.

    Source: Goldberg, Williams and Bishop (1997); the expectation is a moment of a log-normal.

    >>> LogVarianceLikelihood()(torch.zeros(2)).variance
    tensor([1., 1.])
    """

    def __init__(self, num_functions: int | None = None) -> None:
        super().__init__()
        self.num_functions = None if num_functions is None else checks.positive_integer("num_functions", num_functions)

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> torch.distributions.Normal:
        """The distribution of values given those of the function, the logarithms of the variances."""
        return base_distributions.Normal(torch.zeros_like(function_samples), (0.5 * function_samples).exp())

    def expected_log_prob(
        self, observations: Tensor, function_dist: MultivariateNormal, *args: Any, **kwargs: Any
    ) -> Tensor:
        """The expected log density of values (..., N), or (..., N, T) for T functions, in closed form."""
        mean, variance = function_dist.mean, function_dist.variance
        scaled = observations.square() * (0.5 * variance - mean).exp()
        return -0.5 * (math.log(2.0 * math.pi) + mean + scaled)
