"""What stands in the place of inducing points: the weights of random features, and the functions that they make."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import gpytorch
import torch
from linear_operator.operators import DiagLinearOperator, LinearOperator, RootLinearOperator
from torch import Tensor

from ..._support import checks
from ...inference import OutputFactor
from ...inference.latent.variational import GaussianWeights, learned_weights
from ...inference.posterior.covariance import WeightSpaceCovariance, plus_residual
from ...inference.posterior.posterior import RootPosterior
from ...inference.posterior.products import feature_product
from ...likelihoods import MultitaskMultivariateNormal, MultivariateNormal
from ...linalg import joined, row_chunks

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel


class WeightSpaceVariationalStrategy(gpytorch.Module):
    r"""GPyTorch's variational strategy for :math:`f(x) = m(x) + \phi(x)^\top w`, :math:`w \sim q(w)`, prior N(0, I).

    :param model: the model, with a ``mean_module`` and a ``covar_module`` whose map is made.
    :param variational_distribution: GPyTorch's distribution of the weights: (D,), or (C, D) for C functions.

    >>> import rfgp
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), 16, input_dim=1)
    >>> model = rfgp.models.WeightSpaceVariationalGP(kernel, gpytorch.likelihoods.BernoulliLikelihood())
    >>> model.variational_strategy.prior_distribution.event_shape
    torch.Size([16])
    """

    model: Any

    def __init__(self, model: gpytorch.models.ApproximateGP, variational_distribution: Any) -> None:
        super().__init__()
        object.__setattr__(self, "model", model)
        self._variational_distribution = variational_distribution

    @property
    def variational_distribution(self) -> gpytorch.distributions.MultivariateNormal:
        """The distribution of the weights, (D,) or (C, D)."""
        distribution: gpytorch.distributions.MultivariateNormal = self._variational_distribution()
        return distribution

    @property
    def prior_distribution(self) -> MultivariateNormal:
        """Their prior."""
        like = next(self._variational_distribution.parameters())
        zeros = like.new_zeros(self._variational_distribution.shape())
        return MultivariateNormal(zeros, DiagLinearOperator(torch.ones_like(zeros)))

    def set_distribution(self, distribution: MultivariateNormal) -> None:
        """Take over a distribution of the weights, of the same shape."""
        own = self._variational_distribution
        spread, own.mean_init_std = own.mean_init_std, 0.0
        try:
            own.initialize_variational_distribution(distribution)
        finally:
            own.mean_init_std = spread

    def kl_divergence(self) -> Tensor:
        """The divergence of the distribution of the weights from their prior, summed over functions."""
        pair = self.variational_distribution, self.prior_distribution
        divergence: Tensor = torch.distributions.kl.kl_divergence(*pair)
        return divergence.sum()

    def features(self, x: Tensor) -> Tensor:
        """The features (..., N, D) of inputs, or (..., C, N, D) where every function has an output scale."""
        kernel = self.model.covar_module
        return real_scalar_features(kernel, x) * kernel.output_factor().to(x.dtype)

    def forward(self, x: Tensor, prior: bool = False, **kwargs: Any) -> MultivariateNormal:
        """The distribution, or the prior, of the functions at inputs (..., N, d): of several tasks for C functions."""
        distribution = self.prior_distribution if prior else self.variational_distribution
        weights = learned_weights(distribution)
        features = checks.no_overflow(self.features(self._inputs(x, weights)), x)
        unscaled = OutputFactor.kronecker(features.new_ones(1, 1), features.shape[-1])
        root = weights.function_root(features, unscaled)
        fitted = (features.to(root.dtype) @ weights.mean).squeeze(-1)
        return self._distribution(x, fitted, RootLinearOperator(root))

    def lazy(self, x: Tensor) -> MultivariateNormal:
        """The distribution at inputs (..., N, d), whose features are made in chunks where they are needed."""
        kernel, weights = self.model.covar_module, learned_weights(self.variational_distribution).double()
        inputs = self._inputs(x, weights)
        features = functools.partial(real_scalar_features, kernel)
        scale = kernel.output_factor().to(weights.root.dtype)
        factor = OutputFactor.kronecker(scale, weights.mean.shape[-2])
        scaled = weights.mean * scale
        parts = (
            feature_product(features(inputs[..., rows, :]), scaled) for rows in row_chunks(x.shape[-2], len(scaled))
        )
        fitted = checks.no_overflow(joined(parts, x.shape[-2]), x).squeeze(-1)
        return self._distribution(x, fitted, WeightSpaceCovariance(inputs.clone(), weights, factor, features))

    def _inputs(self, x: Tensor, weights: RootPosterior) -> Tensor:
        """Inputs with a dimension for the functions, where there are several."""
        checks.finite(checks.inputs(x).detach())
        return x.unsqueeze(-3) if weights.batch_shape and x.dim() > 2 else x

    def _distribution(self, x: Tensor, fitted: Tensor, covariance: LinearOperator) -> MultivariateNormal:
        offset, residual = self._offset_and_residual(x)
        mean = (fitted + offset).to(x.dtype)
        single = MultivariateNormal(mean, plus_residual(covariance, residual))
        if not self._variational_distribution.batch_shape:
            return single
        return MultitaskMultivariateNormal.from_batch_mvn(single)

    def at(self, x: Tensor) -> FunctionParts:
        """Features, mean and residual variance at inputs (..., N, d), differentiable."""
        return FunctionParts(self.features(x), *self._offset_and_residual(x))

    def _offset_and_residual(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        inputs = x.unsqueeze(-3) if self._variational_distribution.batch_shape and x.dim() > 2 else x
        return self.model.mean_module(inputs), self.model.covar_module.residual_variance(inputs)


class FunctionParts(NamedTuple):
    """Functions at N inputs but for their weights.

    :param features: (N, D), or (C, N, D) where every function has an output scale.
    :param offset: the mean function, which broadcasts to (N,), or to (C, N) for C functions.
    :param residual: the residual variance of the features, likewise; None where they lack nothing.
    """

    features: Tensor
    offset: Tensor
    residual: Tensor | None

    def moments(self, weights: GaussianWeights) -> tuple[Tensor, Tensor]:
        """Means and variances of the functions, (N,) or (C, N), in float64, without gradients."""
        mean, variance = weights.moments(self.features)
        return mean + self.offset.detach(), variance if self.residual is None else variance + self.residual.detach()

    def first_order(self, weights: GaussianWeights, d_mean: Tensor, d_variance: Tensor) -> Tensor:
        """A zero whose gradients in all parameters are those of a function with these gradients in the moments."""
        terms = [d_mean * _change(self.offset)]
        if self.residual is not None:
            terms.append(d_variance * _change(self.residual))
        if self.features.requires_grad:
            terms.append(weights.feature_gradient(self.features, d_mean, d_variance) * _change(self.features))
        return torch.stack([term.sum().double() for term in terms]).sum()


def _change(part: Tensor) -> Tensor:
    return part - part.detach()


def real_scalar_features(kernel: FeatureKernel, x: Tensor) -> Tensor:
    """Scalar features, complex ones as real and imaginary parts side by side: their products are the real part."""
    features: Tensor = kernel.scalar_features(x)
    return torch.cat([features.real, features.imag], dim=-1) if features.is_complex() else features
