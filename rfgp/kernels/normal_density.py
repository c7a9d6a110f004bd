"""GPyTorch's normal densities and predictions by the features of a covariance, where it has some."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.lazy import LazyEvaluatedKernelTensor
from linear_operator.operators import LinearOperator, SumLinearOperator
from torch import Tensor

from .compositions import CompositionPredictionStrategy, contains_features, evaluated, featured
from .feature_operator import FeatureLinearOperator
from .noisy_features import NoisyFeaturesLinearOperator


def use_features() -> None:
    """Let ``log_prob`` of GPyTorch's normal distributions take the features of a covariance that has some.

    Where ``gpytorch.settings.fast_computations.log_prob`` is off, as it is in the whole process after
    ``import botorch``, GPyTorch factors the dense N x N covariance before any operator is asked. The density of
    features plus noise is exact either way; every other covariance goes the way that the setting says.

    A composition of GPyTorch with kernels with features inside, such as ``AdditiveKernel(a, b)``, is taken by its
    features in densities and in the predictions of an ``ExactGP``, which asks the kernel for their strategy.
    """
    MultivariateNormal.log_prob = _by_features(MultivariateNormal.log_prob)
    Kernel.prediction_strategy = _in_weight_space(Kernel.prediction_strategy)


def _in_weight_space(prediction_strategy: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(prediction_strategy)
    def in_weight_space(
        self: Kernel, train_inputs: Any, train_prior_dist: MultivariateNormal, train_labels: Tensor, likelihood: Any
    ) -> Any:
        if contains_features(self):
            covariance = featured(train_prior_dist.lazy_covariance_matrix)
            if isinstance(evaluated(covariance), FeatureLinearOperator):
                prior = train_prior_dist.__class__(train_prior_dist.mean, covariance)
                return CompositionPredictionStrategy(train_inputs, prior, train_labels, likelihood)
        return prediction_strategy(self, train_inputs, train_prior_dist, train_labels, likelihood)

    return in_weight_space


def _by_features(log_prob: Callable[[Any, Tensor], Tensor]) -> Callable[[Any, Tensor], Tensor]:
    @functools.wraps(log_prob)
    def by_features(self: MultivariateNormal, value: Tensor) -> Tensor:
        noisy = noisy_features(self.lazy_covariance_matrix) if self.islazy else None
        if noisy is None:
            return log_prob(self, value)
        with settings.fast_computations.log_prob(True):
            return log_prob(MultivariateNormal(self.loc, noisy), value)

    return by_features


def noisy_features(covariance: LinearOperator) -> NoisyFeaturesLinearOperator | None:
    """The covariance as features plus noise, or None where it is something else.

    :param covariance: (..., N, N), evaluated or lazy.
    """
    parts = covariance.linear_ops if isinstance(covariance, SumLinearOperator) else ()
    if not any(_has_features(part) for part in parts):
        return None
    total = functools.reduce(operator.add, [evaluated(featured(part)) for part in parts])
    return total if isinstance(total, NoisyFeaturesLinearOperator) else None


def _has_features(part: LinearOperator) -> bool:
    if isinstance(part, LazyEvaluatedKernelTensor):
        return contains_features(part.kernel)
    return isinstance(part, FeatureLinearOperator)
