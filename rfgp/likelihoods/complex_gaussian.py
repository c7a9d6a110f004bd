"""Gaussian noise on complex observations."""

from __future__ import annotations

import math
from typing import Any

import torch
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.settings import observation_nan_policy
from torch import Tensor

from .._gpytorch import is_observed
from ..distributions import ComplexNormal


class ComplexGaussianLikelihood(GaussianLikelihood):
    r"""Circular complex noise of variance :math:`\sigma^2` on complex observations.

    .. math:: y = f(x) + \epsilon, \qquad \epsilon \sim CN(0, \sigma^2)

    Parameters, constraint and prior of the noise are those of GPyTorch's GaussianLikelihood; real and imaginary part of
    the noise have variance :math:`\sigma^2 / 2` each. It serves :class:`rfgp.models.WeightSpaceGP`; GPyTorch's ExactGP
    has no complex targets.

    Source: T Eq. B.7.

    >>> likelihood = ComplexGaussianLikelihood()
    >>> likelihood.noise.shape
    torch.Size([1])
    """

    def expected_log_prob(self, target: Tensor, input: ComplexNormal, *params: Any, **kwargs: Any) -> Tensor:
        r"""The expected log density of every observation, with the marginals :math:`CN(m, v)` of the function.

        .. math:: E_f \log p(y \mid f) = -\log(\pi \sigma^2) - \frac{|y - m|^2 + v}{\sigma^2}

        :param target: y, (..., N), complex; NaN as GPyTorch's ``observation_nan_policy`` says.
        :param input: the distribution of the function, of event shape (N,).
        :returns: (..., N), real.
        :raises ValueError: where the distribution is not a ComplexNormal.
        """
        function = _complex_normal(input)
        return _log_densities(target, function, self._noise(function.mean, *params, **kwargs), function.variance)

    def log_marginal(self, observations: Tensor, function_dist: ComplexNormal, *params: Any, **kwargs: Any) -> Tensor:
        r"""The log density of every observation by its marginal, :math:`-\log(\pi v_y) - |y - m|^2 / v_y`.

        :param observations: y, (..., N), complex; NaN as GPyTorch's ``observation_nan_policy`` says.
        :param function_dist: the distribution of the function, of event shape (N,).
        :returns: (..., N), real.
        :raises ValueError: where the distribution is not a ComplexNormal.
        """
        marginal = self.marginal(function_dist, *params, **kwargs)
        return _log_densities(observations, marginal, marginal.variance, torch.zeros_like(marginal.variance))

    def marginal(self, function_dist: ComplexNormal, *args: Any, **kwargs: Any) -> ComplexNormal:
        """The distribution of noisy observations of a function with the given distribution.

        :raises ValueError: where the distribution is not a ComplexNormal.
        """
        function = _complex_normal(function_dist)
        return function.plus_noise(self._noise(function.mean, *args, **kwargs))

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> ComplexNormal:
        """The distribution of independent observations of given function values, (..., N).

        :raises ValueError: for values that are not complex.
        """
        if not isinstance(function_samples, Tensor) or not function_samples.is_complex():
            got = function_samples.dtype if isinstance(function_samples, Tensor) else type(function_samples).__name__
            raise ValueError(f"expected complex function values, got {got}; use a GaussianLikelihood for real ones")
        root = function_samples.new_zeros(*function_samples.shape, 1)
        noise = self._noise(function_samples, *args, **kwargs)
        return ComplexNormal(function_samples, covariance_root=root, diagonal=noise)

    def __call__(self, input: ComplexNormal | Tensor, *args: Any, **kwargs: Any) -> ComplexNormal:
        if isinstance(input, Tensor):
            return self.forward(input, *args, **kwargs)
        return self.marginal(input, *args, **kwargs)

    def _noise(self, mean: Tensor, *params: Any, **kwargs: Any) -> Tensor:
        """The noise variances of observations of the shape of ``mean``, as they are now."""
        return self._shaped_noise_covar(mean.shape, *params, **kwargs).diagonal(dim1=-1, dim2=-2).clone()


def _complex_normal(distribution: Any) -> ComplexNormal:
    if not isinstance(distribution, ComplexNormal):
        raise ValueError(
            f"expected a ComplexNormal for a ComplexGaussianLikelihood, got {type(distribution).__name__}; give "
            "complex targets to rfgp.models.WeightSpaceGP, since GPyTorch's models have none"
        )
    return distribution


def _log_densities(y: Tensor, distribution: ComplexNormal, variance: Tensor, spread: Tensor) -> Tensor:
    r"""The numbers :math:`-\log(\pi v) - (|y - m|^2 + s) / v`, (..., N), without missing observations."""
    policy, missing = observation_nan_policy.value(), torch.isnan(y)
    known = y if policy == "ignore" else torch.where(missing, 0.0, y)
    difference = known - distribution.mean
    quadratic = difference.real.square() + difference.imag.square() + spread
    values = -(quadratic / variance + variance.log() + math.log(math.pi))
    if policy == "mask":
        return values[..., is_observed(y, distribution.event_shape)]
    return values * ~missing if policy == "fill" else values
