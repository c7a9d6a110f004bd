"""The best distribution of log noise of a heteroscedastic model, by natural-gradient steps on a bound."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import NamedTuple

import torch
from gpytorch.means import Mean
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from ...approximation.hooks.feature_operator import FeatureLinearOperator
from ...approximation.hooks.noisy_features import NoisyFeaturesLinearOperator
from ...inference.latent.variational import GaussianWeights, Sites, expected_log_likelihood, natural_ascent
from ...likelihoods import LogVarianceLikelihood
from ..target_moments import target_moments
from ..variational.strategy import FunctionParts

_PRECISION = 1e-10
_ROUNDING = 10.0 * torch.finfo(torch.float64).eps
"""Errors of the matrix of a regression, relative to its trace, at most."""


class TrainingParts(NamedTuple):
    """Training data x (N, d) and y (N,) or (N, T) of a :class:`HeteroscedasticGP`, with what the fit computes of them.

    ``residual`` is zero where targets are missing; ``missing`` is the residual variance of the features plus the least
    noise.
    """

    x: Tensor
    y: Tensor
    observed: Tensor
    noise: FunctionParts
    prior: FeatureLinearOperator
    residual: Tensor
    missing: Tensor

    def by_row(self, values: Tensor) -> Tensor:
        """Values (N,) as they are; (T, N) as (N, T), or the other way round."""
        return values.mT if values.dim() > 1 else values

    def regression(self, noise: Tensor) -> tuple[float, Tensor]:
        """The log evidence with noise of the shape of the targets, and the root mean squared errors of the targets."""
        noisy = NoisyFeaturesLinearOperator(self.prior, DiagLinearOperator(noise.reshape(-1)))
        system = noisy.system(self.residual.reshape(-1, 1), self.observed.reshape(-1))
        posterior, (scalar, factor) = system.posterior(), self.prior.parts()
        errors = self.residual - noisy.fitted(posterior.mean).reshape(noise.shape)
        variance = posterior.function_variance(scalar, factor).reshape(noise.shape) + self.missing
        terms = (errors.square() + self.missing) / noise + (2.0 * math.pi * noise).log()
        total = terms[self.observed].sum() + posterior.mean.square().sum() + system.log_determinant(posterior)
        return -0.5 * float(total), (errors.square() + variance).sqrt()


@dataclasses.dataclass(frozen=True)
class NoiseFit(Sites):
    """A distribution of the weights of log noise with its bound, and the noise variances (N,) or (N, T) of it."""

    noise: Tensor


def best_fit(at: TrainingParts, likelihood: LogVarianceLikelihood, start: GaussianWeights) -> NoiseFit:
    """The distribution of the weights of log noise that maximizes the bound, by steps from a start."""
    return natural_ascent(start, at.noise.features, functools.partial(_sites, at, likelihood), _PRECISION)


@torch.no_grad()
def _sites(at: TrainingParts, likelihood: LogVarianceLikelihood, weights: GaussianWeights) -> NoiseFit:
    """The bound for a distribution of the weights of log noise, and its gradient in the moments of log noise."""
    mean, variance = at.noise.moments(weights)
    observed = at.by_row(at.observed)
    noise = at.by_row((mean - 0.5 * variance).exp())
    evidence, errors = at.regression(noise)
    expected = expected_log_likelihood(likelihood, at.by_row(errors)[observed], mean[observed], variance[observed])
    d_mean, d_variance = torch.zeros_like(mean), torch.zeros_like(mean)
    d_mean[observed], d_variance[observed] = expected.d_mean, expected.d_variance
    bound = evidence - 0.25 * float(variance[observed].sum()) - float(weights.kl_divergence.sum())
    return NoiseFit(weights, bound, d_mean, d_variance, noise.to(at.x))


def least_noise(y: Tensor, mean: Mean, x: Tensor, prior: FeatureLinearOperator) -> Tensor:
    """The least noise variances (1,) or (T,) of targets (N,) or (N, T): smaller ones drown in rounding."""
    least = target_moments(y if y.dim() > 1 else y.unsqueeze(-1), mean, x).least_noise
    return least.maximum(_ROUNDING * prior.diagonal().double().sum())
