"""Counts whose rate is the exponential of the function."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal, base_distributions
from torch import Tensor

from .quadrature import QuadratureLikelihood


class PoissonLikelihood(QuadratureLikelihood):
    r"""Counts with the rate exp(f), the logarithmic link of Poisson regression.

    .. math:: p(y \mid f) = \frac{e^{y f - e^f}}{y!}, \qquad
        E_{f \sim N(m, v)} \log p(y \mid f) = y m - e^{m + v/2} - \log y!

    GPyTorch's likelihood of this name has softplus(f) as its rate.

    Source: Rasmussen and Williams (2006), section 9.3, for the model; the expectation is a moment of a log-normal.

    >>> PoissonLikelihood()(torch.zeros(2)).rate
    tensor([1., 1.])
    """

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> torch.distributions.Poisson:
        """The distribution of counts given values of the function, the logarithms of the rates."""
        return base_distributions.Poisson(function_samples.exp())

    def expected_log_prob(
        self, observations: Tensor, function_dist: MultivariateNormal, *args: Any, **kwargs: Any
    ) -> Tensor:
        """The expected log density of counts (..., N), in closed form."""
        mean, variance = function_dist.mean, function_dist.variance
        return observations * mean - (mean + 0.5 * variance).exp() - torch.lgamma(observations + 1.0)
