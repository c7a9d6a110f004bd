"""Counts whose rate is the exponential of the function."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal, base_distributions
from torch import Tensor

from .counts import CountLikelihood, log_exposure


class PoissonLikelihood(CountLikelihood):
    r"""Counts with the rate exp(f), the logarithmic link of Poisson regression.

    .. math:: p(y \mid f) = \frac{e^{y f - e^f}}{y!}, \qquad
        E_{f \sim N(m, v)} \log p(y \mid f) = y m - e^{m + v/2} - \log y!

    Rows with an exposure e have the rate e exp(f): ``likelihood(f, exposure=e)``.
    GPyTorch's likelihood of this name has softplus(f) as its rate.

    Source: Rasmussen and Williams (2006), section 9.3, for the model; the expectation is a moment of a log-normal.

    >>> PoissonLikelihood()(torch.zeros(2)).rate
    tensor([1., 1.])
    >>> PoissonLikelihood()(torch.zeros(2), exposure=torch.tensor([1.0, 10.0])).rate
    tensor([ 1., 10.])
    """

    def counts(self, f: Tensor) -> torch.distributions.Poisson:
        """The distribution of counts given the logarithms of their means."""
        return base_distributions.Poisson(f.exp())

    def expected_log_prob(
        self, observations: Tensor, function_dist: MultivariateNormal, *args: Any, exposure: Any = None, **kwargs: Any
    ) -> Tensor:
        """The expected log density of counts (..., N), in closed form."""
        mean, variance = function_dist.mean, function_dist.variance
        mean = mean + log_exposure(exposure, mean)
        return observations * mean - (mean + 0.5 * variance).exp() - torch.lgamma(observations + 1.0)
