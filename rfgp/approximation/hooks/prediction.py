"""Posterior prediction of an exact GP whose kernel has features, in weight space."""

from __future__ import annotations

import functools
from typing import Any

import torch
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import Likelihood
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from linear_operator.operators import LinearOperator, ZeroLinearOperator
from torch import Tensor

from ...features import FeatureMap
from ...inference import GaussianPosterior
from ...inference.posterior.covariance import WeightSpaceCovariance
from ..width_warning import warn_of_width
from .feature_operator import FeatureLinearOperator, PosteriorLinearOperator
from .noisy_features import NoisyFeaturesLinearOperator
from .output_features import OutputFeatures


class FeaturePredictionStrategy(DefaultPredictionStrategy):
    """GPyTorch's prediction strategy, by the posterior :math:`N(m, B^{-1})` of the weights at O(N D^2).

    Missing observations have precision zero, and the residual variance of the features is added; a covariance
    without features is predicted by GPyTorch.
    """

    def __init__(
        self,
        train_inputs: list[Tensor],
        train_prior_dist: MultivariateNormal,
        train_labels: Tensor,
        likelihood: Likelihood,
    ) -> None:
        self._lazy_prior = train_prior_dist
        self._version = _version(train_prior_dist)
        evaluated = train_prior_dist.lazy_covariance_matrix.evaluate_kernel()
        prior = train_prior_dist.__class__(train_prior_dist.mean, evaluated)
        super().__init__(train_inputs, prior, train_labels, likelihood)
        self._posteriors: dict[tuple[str, bool], GaussianPosterior] = {}
        is_scalar = isinstance(evaluated, FeatureLinearOperator) and not isinstance(evaluated.root, OutputFeatures)
        if is_scalar and evaluated.root.shape[-1] > evaluated.shape[-1]:
            width, rows = evaluated.root.shape[-1], evaluated.shape[-1]
            kernel = getattr(train_prior_dist.lazy_covariance_matrix, "kernel", likelihood)
            warn_of_width(kernel, f"{width} features exceed the {rows} training rows")

    def _refresh(self) -> None:
        """Take the features of the training data anew where the weights have been drawn anew."""
        version = _version(self._lazy_prior)
        if version == self._version:
            return
        lazy = self._lazy_prior.lazy_covariance_matrix
        evaluated = lazy.__class__(lazy.x1, lazy.x2, kernel=lazy.kernel).evaluate_kernel()
        self.train_prior_dist = self._lazy_prior.__class__(self._lazy_prior.mean, evaluated)
        self.lik_train_train_covar = self.likelihood(self.train_prior_dist, self.train_inputs).lazy_covariance_matrix
        self._posteriors.clear()
        self._version = version

    def weight_posterior(self) -> GaussianPosterior:
        """The posterior of the weights given the training data, cached until gradients run back through it."""
        self._refresh()
        key = (settings.observation_nan_policy.value(), settings.detach_test_caches.on())
        if key not in self._posteriors:
            posterior = self._compute_posterior(*key)
            if posterior.mean.grad_fn is not None:
                posterior.mean.grad_fn.register_hook(functools.partial(self._forget, key))
            self._posteriors[key] = posterior
        return self._posteriors[key]

    def _forget(self, key: tuple[str, bool], *_: Any) -> None:
        self._posteriors.pop(key, None)

    def _compute_posterior(self, nan_policy: str, detach: bool) -> GaussianPosterior:
        residual, observed = (self.train_labels - self.train_prior_dist.loc).double(), None
        if nan_policy != "ignore" and bool(torch.isnan(residual).any()):
            observed = ~torch.isnan(residual)
            residual = residual.nan_to_num(0.0)
        if not detach:
            return self.lik_train_train_covar.posterior(residual, observed, tracks=True)
        with torch.no_grad():
            return self.lik_train_train_covar.posterior(residual, observed)

    def exact_prediction(
        self, test_mean: Tensor, test_test_covar: LinearOperator, test_train_covar: LinearOperator
    ) -> tuple[Tensor, LinearOperator]:
        self._refresh()
        prior, noisy = test_test_covar.evaluate_kernel(), self.lik_train_train_covar
        if not isinstance(noisy, NoisyFeaturesLinearOperator) or not isinstance(prior, FeatureLinearOperator):
            return super().exact_prediction(test_mean, test_test_covar, test_train_covar)
        posterior, (scalar, factor) = self.weight_posterior(), prior.parts()
        values = factor.functions(scalar, posterior.mean)
        mean = test_mean + values.flatten(-3).to(test_mean.dtype)
        if settings.skip_posterior_variances.on():
            return mean, ZeroLinearOperator(*mean.shape, mean.shape[-1], dtype=mean.dtype, device=mean.device)
        residual = prior.residual()
        if factor.num_outputs > 1 or isinstance(prior.root, OutputFeatures):
            covariance = WeightSpaceCovariance(scalar, posterior, factor, _identity)
            return mean, covariance if residual is None else residual.added_to(covariance)
        root = PosteriorLinearOperator(posterior.function_root(scalar, factor).to(scalar.dtype))
        return mean, root if residual is None else root.add_diagonal(residual.variance())

    def get_fantasy_strategy(
        self,
        inputs: list[Tensor],
        targets: Tensor,
        full_inputs: list[Tensor],
        full_targets: Tensor,
        full_output: MultivariateNormal,
        **kwargs: Any,
    ) -> FeaturePredictionStrategy:
        """The strategy for the training data and the new observations together, at the cost of a new posterior."""
        likelihood = self.likelihood.get_fantasy_likelihood(**kwargs)
        return self.__class__(full_inputs, full_output, full_targets, likelihood)


def _identity(scalar: Tensor) -> Tensor:
    return scalar


def _version(prior: MultivariateNormal) -> int:
    """How many times the weights behind the kernel of a prior have been drawn anew."""
    kernel = getattr(prior.lazy_covariance_matrix, "kernel", None)
    modules = kernel.modules() if isinstance(kernel, torch.nn.Module) else ()
    return sum(module.version for module in modules if isinstance(module, FeatureMap))
