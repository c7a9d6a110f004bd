"""The best distribution of log noise of a heteroscedastic model, by natural-gradient steps on a bound."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from gpytorch.means import Mean
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from ...approximation.hooks.feature_operator import FeatureLinearOperator
from ...approximation.hooks.noisy_features import NoisyFeaturesLinearOperator
from ...inference.latent.variational import GaussianWeights, expected_log_likelihood
from ..target_moments import target_moments
from ..variational.strategy import FunctionParts

_STEPS = 500
_PRECISION = 1e-10
_ROUNDING = 10.0 * torch.finfo(torch.float64).eps
"""Errors of the matrix of a regression, relative to its trace, at most."""
_SMALLEST_STEP = 1e-3


class TrainingParts(NamedTuple):
    """Training data x (N, d) and y (N,) or (N, T) of a :class:`HeteroscedasticGP`, with what the fit computes of them.

    ``residual`` is zero where targets are missing; ``missing`` is the prior variance that features lack plus the least
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


class NoiseFit(NamedTuple):
    """A distribution of the weights of log noise, its bound, and the gradients in the moments, (N,) or (T, N)."""

    weights: GaussianWeights
    noise: Tensor
    bound: float
    d_mean: Tensor
    d_variance: Tensor


def best_fit(at: TrainingParts, likelihood: Any, start: GaussianWeights) -> NoiseFit:
    """The distribution of the weights of log noise that maximizes the bound, by steps from a start."""
    now = _step(at, likelihood, start)
    for _ in range(_STEPS):
        target, size = now.weights.target(at.noise.features, now.d_mean, now.d_variance), 1.0
        tolerance = _PRECISION * max(1.0, abs(now.bound))
        gain = -math.inf
        while gain < -tolerance and size >= _SMALLEST_STEP:
            new = _step_or_none(at, likelihood, now.weights, target, size)
            gain, size = -math.inf if new is None else new.bound - now.bound, 0.5 * size
        if new is not None and gain > 0.0:
            now = new
        if gain <= tolerance:
            break
    return now


def _step_or_none(
    at: TrainingParts, likelihood: Any, weights: GaussianWeights, target: tuple[Tensor, Tensor], size: float
) -> NoiseFit | None:
    """The same as :meth:`_step` after a step, or None where it leads to weights or noise without a regression."""
    try:
        fit = _step(at, likelihood, weights.stepped(target, size))
    except ValueError:
        return None
    return fit if math.isfinite(fit.bound) else None


@torch.no_grad()
def _step(at: TrainingParts, likelihood: Any, weights: GaussianWeights) -> NoiseFit:
    """The bound for a distribution of the weights of log noise, and its gradient in the moments of log noise."""
    mean, variance = at.noise.moments(weights)
    observed = at.by_row(at.observed)
    noise = at.by_row((mean - 0.5 * variance).exp())
    evidence, errors = at.regression(noise)
    expected = expected_log_likelihood(likelihood, at.by_row(errors)[observed], mean[observed], variance[observed])
    d_mean, d_variance = torch.zeros_like(mean), torch.zeros_like(mean)
    d_mean[observed], d_variance[observed] = expected.d_mean, expected.d_variance
    bound = evidence - 0.25 * float(variance[observed].sum()) - float(weights.kl_divergence.sum())
    return NoiseFit(weights, noise.to(at.x), bound, d_mean, d_variance)


def least_noise(y: Tensor, mean: Mean, x: Tensor, prior: FeatureLinearOperator) -> Tensor:
    """The least noise variances (1,) or (T,) of targets (N,) or (N, T): smaller ones drown in rounding."""
    least = target_moments(y if y.dim() > 1 else y.unsqueeze(-1), mean, x).least_noise
    return least.maximum(_ROUNDING * prior.diagonal().double().sum())
