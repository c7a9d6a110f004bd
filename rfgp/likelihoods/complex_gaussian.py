"""Gaussian noise on complex observations."""

from __future__ import annotations

from typing import Any

from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from ..distributions import ComplexNormal


class ComplexGaussianLikelihood(GaussianLikelihood):
    r"""Circular complex noise of variance :math:`\sigma^2` on complex observations.

    .. math:: y = f(x) + \epsilon, \qquad \epsilon \sim CN(0, \sigma^2)

    Parameters, constraint and prior of the noise are those of GPyTorch's GaussianLikelihood; real and imaginary part of
    the noise have variance :math:`\sigma^2 / 2` each.

    Source: T Eq. B.7.

    >>> likelihood = ComplexGaussianLikelihood()
    >>> likelihood.noise.shape
    torch.Size([1])
    """

    def marginal(self, function_dist: ComplexNormal, *args: Any, **kwargs: Any) -> ComplexNormal:
        """The distribution of noisy observations of a function with the given distribution."""
        return function_dist.plus_noise(self.noise)

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> ComplexNormal:
        """The distribution of independent observations of given function values, (..., N)."""
        root = function_samples.new_zeros(*function_samples.shape, 1)
        return ComplexNormal(function_samples, covariance_root=root, diagonal=self.noise)

    def __call__(self, input: ComplexNormal | Tensor, *args: Any, **kwargs: Any) -> ComplexNormal:
        return self.marginal(input) if isinstance(input, ComplexNormal) else self.forward(input)
