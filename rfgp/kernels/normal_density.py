"""GPyTorch's normal densities by the features of the covariance, whatever ``fast_computations`` says."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.lazy import LazyEvaluatedKernelTensor
from linear_operator.operators import LinearOperator, SumLinearOperator
from torch import Tensor

from .feature_operator import FeatureLinearOperator
from .noisy_features import NoisyFeaturesLinearOperator
from .random_feature_kernel import RandomFeatureKernel


def use_features() -> None:
    """Let ``log_prob`` of GPyTorch's normal distributions take the features of a covariance that has some.

    Where ``gpytorch.settings.fast_computations.log_prob`` is off, as it is in the whole process after
    ``import botorch``, GPyTorch factors the dense N x N covariance before any operator is asked. The density of
    features plus noise is exact either way; every other covariance goes the way that the setting says.
    """
    MultivariateNormal.log_prob = _by_features(MultivariateNormal.log_prob)


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
    total = functools.reduce(operator.add, [part.evaluate_kernel() for part in parts])
    return total if isinstance(total, NoisyFeaturesLinearOperator) else None


def _has_features(part: LinearOperator) -> bool:
    if isinstance(part, LazyEvaluatedKernelTensor):
        return any(isinstance(module, RandomFeatureKernel) for module in part.kernel.modules())
    return isinstance(part, FeatureLinearOperator)
