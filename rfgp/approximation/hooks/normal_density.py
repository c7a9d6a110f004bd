"""GPyTorch's kernel matrices, normal densities and predictions by the features of a kernel, where it has some."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel, MultitaskKernel
from gpytorch.lazy import LazyEvaluatedKernelTensor
from linear_operator.operators import LinearOperator, SumLinearOperator
from linear_operator.utils.memoize import cached
from torch import Tensor

from ..._support.gpytorch_names import OPERATOR_DENSITIES
from ..width_warning import warn_of_dense
from .compositions import contains_features, featured, warn_of_lost_features
from .feature_operator import FeatureLinearOperator
from .lazy_matrices import batch_sum, matrix_product
from .noisy_features import NoisyFeaturesLinearOperator
from .prediction import FeaturePredictionStrategy


def use_features() -> None:
    """Let GPyTorch's compositions, prediction strategies and ``log_prob`` take the features of kernels that have some.

    It patches ``evaluate_kernel`` of lazy kernel matrices; a MultitaskKernel stays a Kronecker product for BoTorch.
    It patches their products, and sums over a batch, whose predictions then have the variance that features leave over.
    """
    LazyEvaluatedKernelTensor.evaluate_kernel = _of_composition(LazyEvaluatedKernelTensor.evaluate_kernel)
    LazyEvaluatedKernelTensor.mul = _by_products(LazyEvaluatedKernelTensor.mul)
    LazyEvaluatedKernelTensor.sum = _over_batch(LazyEvaluatedKernelTensor.sum, "sum", batch_sum)
    LazyEvaluatedKernelTensor.prod = _over_batch(LazyEvaluatedKernelTensor.prod, "product", lambda *_: None)
    Kernel.prediction_strategy = _in_weight_space(Kernel.prediction_strategy)
    MultivariateNormal.log_prob = _by_features(MultivariateNormal.log_prob)


def _of_composition(evaluate_kernel: Callable[..., LinearOperator]) -> Callable[..., LinearOperator]:
    @cached(name="kernel_eval")
    @functools.wraps(evaluate_kernel)
    def of_composition(self: LazyEvaluatedKernelTensor) -> LinearOperator:
        return evaluate_kernel(self if isinstance(self.kernel, MultitaskKernel) else featured(self))

    return of_composition


def _by_products(mul: Callable[..., LinearOperator]) -> Callable[..., LinearOperator]:
    @functools.wraps(mul)
    def by_products(self: LazyEvaluatedKernelTensor, other: Any) -> LinearOperator:
        product = matrix_product(self, other)
        if product is not None:
            return product
        if isinstance(other, LinearOperator):
            _warn_of_composition(self.kernel, "product of a matrix", "with another one", "product")
        return mul(self, other)

    return by_products


def _over_batch(
    composed: Callable[..., Any], name: str, by_features: Callable[[LazyEvaluatedKernelTensor, int], Any]
) -> Callable[..., Any]:
    @functools.wraps(composed)
    def over_batch(self: LazyEvaluatedKernelTensor, dim: int | None = None) -> Any:
        if dim is None or dim % self.dim() >= self.dim() - 2:
            return composed(self, dim)
        found = by_features(self, dim)
        if found is None:
            _warn_of_composition(self.kernel, f"{name} of matrices", "over a batch", name)
        return composed(self, dim) if found is None else found

    return over_batch


def _warn_of_composition(kernel: Kernel, what: str, how: str, composition: str) -> None:
    if contains_features(kernel):
        warn_of_dense(
            kernel,
            f"the {what} of {type(kernel).__name__} {how} is dense, at O(N^3), and lacks the variance that features "
            f"leave over; approximate the {composition} of the kernels",
        )


def _in_weight_space(prediction_strategy: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(prediction_strategy)
    def in_weight_space(
        self: Kernel, train_inputs: Any, train_prior_dist: MultivariateNormal, train_labels: Tensor, likelihood: Any
    ) -> Any:
        arguments = (train_inputs, train_prior_dist, train_labels, likelihood)
        covariance = train_prior_dist.lazy_covariance_matrix
        if contains_features(self) and isinstance(covariance.evaluate_kernel(), FeatureLinearOperator):
            return FeaturePredictionStrategy(*arguments)
        warn_of_lost_features(covariance)
        return prediction_strategy(self, *arguments)

    return in_weight_space


def _by_features(log_prob: Callable[[Any, Tensor], Tensor]) -> Callable[[Any, Tensor], Tensor]:
    @functools.wraps(log_prob)
    def by_features(self: MultivariateNormal, value: Tensor) -> Tensor:
        noisy = noisy_features(self.lazy_covariance_matrix) if self.islazy else None
        if noisy is None:
            return log_prob(self, value)
        with OPERATOR_DENSITIES:
            return log_prob(MultivariateNormal(self.loc, noisy), value)

    return by_features


def noisy_features(covariance: LinearOperator) -> NoisyFeaturesLinearOperator | None:
    """The covariance (..., N, N), evaluated or lazy, as features plus noise; None where it is something else."""
    parts = covariance.linear_ops if isinstance(covariance, SumLinearOperator) else ()
    if not any(_has_features(part) for part in parts):
        return None
    total = functools.reduce(operator.add, [_evaluated(part) for part in parts])
    if isinstance(total, NoisyFeaturesLinearOperator):
        return total
    for part in parts:
        warn_of_lost_features(part)
    return None


def _evaluated(part: LinearOperator) -> LinearOperator:
    is_several = isinstance(part, LazyEvaluatedKernelTensor) and isinstance(part.kernel, MultitaskKernel)
    return (featured(part) if is_several else part).evaluate_kernel()


def _has_features(part: LinearOperator) -> bool:
    if isinstance(part, LazyEvaluatedKernelTensor):
        return contains_features(part.kernel)
    return isinstance(part, FeatureLinearOperator)
