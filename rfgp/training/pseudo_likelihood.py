"""GPyTorch's leave-one-out objective, in weight space where the kernel has features."""

from __future__ import annotations

import math
from typing import Any

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from torch import Tensor

from .._support.gpytorch_names import with_priors
from ..approximation.hooks.noisy_features import NoisyFeaturesLinearOperator, num_outputs
from ..inference.posterior.products import feature_product
from ..linalg import cholesky


class LeaveOneOutPseudoLikelihood(gpytorch.mlls.LeaveOneOutPseudoLikelihood):
    r"""The mean log density of every target given all others, for an ExactGP, at O(N D^2).

    .. math:: \frac1N \sum_i \log N\Big(y_i \mid y_i - \frac{\alpha_i}{p_i}, \frac1{p_i}\Big), \qquad
        \alpha = K^{-1} (y - m), \qquad p_i = (K^{-1})_{ii} = \frac{1 - H_{ii}}{s_i}, \qquad
        H_{ii} = \phi_i^\top (I + \Phi^\top S^{-1} \Phi)^{-1} \phi_i / s_i

    For kernels without features, or with as many features as rows, it is GPyTorch's class.

    :param likelihood: a GaussianLikelihood, or one with fixed noise.
    :param model: an ExactGP.

    Source: C. E. Rasmussen and C. K. I. Williams, Gaussian Processes for Machine Learning, 2006, Eq. 5.10 to 5.12;
    errata, identity 4 of the last section.

    >>> import gpytorch
    >>> x, y = torch.rand(100, 2), torch.rand(100)
    >>> class Model(gpytorch.models.ExactGP):
    ...     def forward(self, x):
    ...         return MultivariateNormal(torch.zeros(len(x)), gpytorch.kernels.RBFKernel()(x))
    >>> model = Model(x, y, gpytorch.likelihoods.GaussianLikelihood())
    >>> LeaveOneOutPseudoLikelihood(model.likelihood, model)(model(x), y).shape
    torch.Size([])
    """

    def forward(self, function_dist: MultivariateNormal, target: Tensor, *params: Any) -> Tensor:
        """The objective, of what the model in training mode returns, and targets (..., N)."""
        output = self.likelihood(function_dist, *params)
        if not _has_fewer_features(output.lazy_covariance_matrix.evaluate_kernel()):
            result: Tensor = super().forward(function_dist, target, *params)
            return result
        densities = self.log_densities(function_dist, target, *params)
        constant = 0.5 * math.log(2.0 * math.pi)
        total = with_priors(self, (densities + constant).sum(-1).to(target.dtype), params)
        return total / target.size(-1) - constant

    def log_densities(self, function_dist: MultivariateNormal, target: Tensor, *params: Any) -> Tensor:
        """The log density of every target given all others, (..., N), without priors."""
        output = self.likelihood(function_dist, *params)
        covariance, residual = output.lazy_covariance_matrix.evaluate_kernel(), target - output.mean
        residual = residual.reshape(target.shape)
        if _has_fewer_features(covariance):
            precision, weights = _precision_and_weights(covariance, residual)
        else:
            inverse = torch.cholesky_inverse(cholesky(covariance.to_dense()))
            precision = inverse.diagonal(dim1=-2, dim2=-1)
            weights = (inverse @ residual.unsqueeze(-1)).squeeze(-1)
        return 0.5 * (precision.log() - weights.square() / precision - math.log(2.0 * math.pi))


def _has_fewer_features(covariance: Any) -> bool:
    """Whether a covariance of noisy observations is that of one output with fewer features than rows."""
    if not isinstance(covariance, NoisyFeaturesLinearOperator) or num_outputs(covariance.linear_ops[0]) > 1:
        return False
    features = covariance.linear_ops[0].root
    return bool(features.shape[-1] < features.shape[-2])


def _precision_and_weights(covariance: NoisyFeaturesLinearOperator, residual: Tensor) -> tuple[Tensor, Tensor]:
    """The diagonal of the inverse covariance, and its product with residuals, (..., N), in float64."""
    exact = residual.double()
    posterior = covariance.posterior(exact, tracks=torch.is_grad_enabled())
    scalar, factor = covariance.linear_ops[0].parts()
    noise = covariance.noise.variances(exact.shape[-1])
    leverage = posterior.function_variance(scalar, factor) / noise
    fitted = feature_product(scalar, factor.scalar_weights(posterior.mean).squeeze(-1)).squeeze(-1)
    return (1.0 - leverage) / noise, (exact - fitted) / noise
