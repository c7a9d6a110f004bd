"""What is said of new counts whose log rates are normal."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from .count_quantiles import count_quantiles
from .counts import CountLikelihood
from .negative_binomial import NegativeBinomialLikelihood
from .normal import MultivariateNormal

_CHUNK = 4096


class CountPredictive:
    r"""New counts (N,), each alone, given normal log rates with means m and variances v, exposures included.

    .. math:: E[y] = e^{m + v / 2}, \qquad \mathrm{Var}[y] = E[y] + E[y]^2\, \big((1 + \alpha)\, e^v - 1\big)

    :param likelihood: of Poisson counts, or of negative binomial ones of dispersion :math:`\alpha`.
    :param log_mean: m, (N,), float64.
    :param variance: v, (N,).
    """

    def __init__(self, likelihood: CountLikelihood, log_mean: Tensor, variance: Tensor) -> None:
        self.likelihood, self.log_mean, self.variance_of_log = likelihood, log_mean, variance

    @property
    def dispersion(self) -> float:
        """That of the counts, zero for Poisson ones."""
        return dispersion_of(self.likelihood)

    @property
    def mean(self) -> Tensor:
        """The expected counts, (N,)."""
        return torch.exp(self.log_mean + 0.5 * self.variance_of_log)

    @property
    def stddev(self) -> Tensor:
        """The standard deviations of counts, (N,)."""
        mean, v = self.mean, self.variance_of_log
        return torch.sqrt(mean + mean.square() * (torch.expm1(v) + self.dispersion * torch.exp(v)))

    def icdf(self, level: Any) -> Tensor:
        """The smallest counts (N,) that are not exceeded with this probability at least."""
        parts = zip(self.log_mean.split(_CHUNK), self.variance_of_log.split(_CHUNK), strict=True)
        of_parts = [count_quantiles(float(level), m.numpy(), v.numpy(), self.dispersion) for m, v in parts]
        return torch.cat([self.log_mean[:0], *map(torch.from_numpy, of_parts)])

    @torch.no_grad()
    def log_prob(self, counts: Tensor) -> Tensor:
        """The log probabilities of counts (N,), NaN where these are missing."""
        latent = MultivariateNormal(self.log_mean, DiagLinearOperator(self.variance_of_log))
        found: Tensor = self.likelihood.marginal(latent).log_prob(counts.nan_to_num(0.0))
        return torch.where(counts.isnan(), torch.nan, found)


def dispersion_of(likelihood: Any) -> float:
    """The dispersion of counts, zero for Poisson ones."""
    return float(likelihood.dispersion.detach()) if isinstance(likelihood, NegativeBinomialLikelihood) else 0.0
