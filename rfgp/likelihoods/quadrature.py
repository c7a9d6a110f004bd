"""Marginals of likelihoods by quadrature over the function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal, base_distributions
from torch import Tensor
from torch.distributions import Distribution

from .._support.gpytorch_names import OneDimensionalLikelihood

_POINTS, _WEIGHTS = np.polynomial.hermite.hermgauss(64)
_LOG_WEIGHTS = np.log(_WEIGHTS) + _POINTS**2
_FARTHEST = 600.0
"""How far a mode may be from the mean of the function: exponentials of it are finite."""
_HALVINGS = 50
_STEP = 1e-4
"""Between values of the function whose log densities are compared, for derivatives."""


def log_mean_density(log_density: Callable[[Tensor], Tensor], mean: Tensor, variance: Tensor) -> Tensor:
    r"""The log of a density's mean over normal function values, :math:`\log E_{f \sim N(m, v)} e^{\ell(f)}`.

    .. math:: \log E_{u \sim N(0, 1)} e^{\ell(m + u \sqrt v)} \approx \log \sum_k w_k
        \exp\big(t_k^2 - \tfrac12 u_k^2 + \ell(m + u_k \sqrt v)\big), \qquad u_k = \hat u + \sqrt 2\, \hat\sigma\, t_k

    by Gauss-Hermite points about the mode of the integrand, as wide as its curvature there. Float64, differentiable.

    :param log_density: takes values of the function (..., N, K) and returns log densities of that shape. It is concave,
        or at least has a single maximum.

    Source: Q. Liu and D. A. Pierce, A note on Gauss-Hermite quadrature, 1994.
    """
    center, spread = mean.double(), variance.double().sqrt()
    distance, curvature = _peak(log_density, center, spread.square())
    mode = distance / spread.detach().clamp_min(torch.finfo(spread.dtype).tiny)
    width = (1.0 + spread.detach().square() * curvature).clamp_min(0.1).rsqrt()
    points, log_weights = (torch.from_numpy(values).to(center.device) for values in (_POINTS, _LOG_WEIGHTS))
    u = mode.unsqueeze(-1) + math.sqrt(2.0) * width.unsqueeze(-1) * points
    terms = log_density(center.unsqueeze(-1) + spread.unsqueeze(-1) * u) - 0.5 * u.square() + log_weights
    return torch.logsumexp(terms, dim=-1) + width.log() - 0.5 * math.log(math.pi)


class QuadratureMarginal(torch.distributions.MixtureSameFamily):
    r"""The distribution of targets whose function is normal, :math:`p(y) = E_{f \sim N(m, v)} p(y \mid f)`.

    Densities are those of :func:`log_mean_density`, moments those of :math:`\sum_k w_k\, p(y \mid m + \sqrt{2 v}\,
    t_k)`.

    :param conditional: takes values of the function (..., N, K) and returns the distribution of targets.
    """

    def __init__(
        self,
        conditional: Callable[[Tensor], Distribution],
        mean: Tensor,
        variance: Tensor,
        quadrature: gpytorch.utils.quadrature.GaussHermiteQuadrature1D,
    ) -> None:
        self._conditional, self._mean, self._variance, self._rule = conditional, mean, variance, quadrature
        points, weights = (values.to(mean) for values in (quadrature.locations, quadrature.weights))
        mixture = base_distributions.Categorical(probs=weights.expand(*mean.shape, len(weights)))
        super().__init__(mixture, conditional(mean.unsqueeze(-1) + (2.0 * variance).sqrt().unsqueeze(-1) * points))

    def expand(
        self, batch_shape: torch.Size | list[int] | tuple[int, ...], _instance: Distribution | None = None
    ) -> QuadratureMarginal:
        """The same distribution for a larger batch."""
        moments = self._mean.expand(*batch_shape), self._variance.expand(*batch_shape)
        return type(self)(self._conditional, *moments, self._rule)

    def log_prob(self, value: Tensor) -> Tensor:
        """The log density of targets (..., N)."""
        mean, variance, known = torch.broadcast_tensors(self._mean, self._variance, value)
        targets = known.double().unsqueeze(-1)
        found = log_mean_density(lambda f: self._conditional(f).log_prob(targets), mean, variance)
        return found.to(self._mean.dtype)

    def sample(self, sample_shape: torch.Size | list[int] | tuple[int, ...] = ()) -> Tensor:
        """Draws of targets, each with a function value of its own."""
        with torch.no_grad():
            f = base_distributions.Normal(self._mean, self._variance.sqrt()).sample(torch.Size(sample_shape))
            drawn: Tensor = self._conditional(f.unsqueeze(-1)).sample().squeeze(-1)
        return drawn


class QuadratureLikelihood(OneDimensionalLikelihood):
    """A likelihood of one function whose marginals are by quadrature."""

    def conditional(self, function_samples: Tensor) -> Distribution:
        """The distribution of targets, given K values of the function at every input, (..., N, K)."""
        found: Distribution = self.forward(function_samples)
        return found

    def log_marginal(
        self, observations: Tensor, function_dist: MultivariateNormal, *args: Any, **kwargs: Any
    ) -> Tensor:
        """The log density (..., N) of targets (..., N), without the function."""
        return self.marginal(function_dist).log_prob(observations)

    def marginal(self, function_dist: MultivariateNormal, *args: Any, **kwargs: Any) -> QuadratureMarginal:
        """The distribution of targets, without the function."""
        return QuadratureMarginal(self.conditional, function_dist.mean, function_dist.variance, self.quadrature)


@torch.no_grad()
def _peak(log_density: Callable[[Tensor], Tensor], mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """The distance of the mode of the integrand from the mean, and the curvature of the log density there."""
    slope = _slopes(log_density, mean)[0].nan_to_num(0.0)
    sign, near, far = slope.sign(), torch.zeros_like(slope), (variance * slope.abs()).clamp_max(_FARTHEST)
    for _ in range(_HALVINGS):
        middle = 0.5 * (near + far)
        is_before = sign * variance * _slopes(log_density, mean + sign * middle)[0] > middle
        near, far = torch.where(is_before, middle, near), torch.where(is_before, far, middle)
    distance = sign * near
    return distance, -_slopes(log_density, mean + distance)[1].nan_to_num(0.0)


def _slopes(log_density: Callable[[Tensor], Tensor], f: Tensor) -> tuple[Tensor, Tensor]:
    """The first and the second derivative of the log density, by differences."""
    steps = torch.linspace(-_STEP, _STEP, 3, dtype=f.dtype, device=f.device)
    below, here, above = log_density(f.unsqueeze(-1) + steps).unbind(-1)
    return (above - below) / (2.0 * _STEP), (above - 2.0 * here + below) / _STEP**2
