"""The features of GPyTorch's own compositions of kernels with features, such as ``AdditiveKernel(a, b)``."""

from __future__ import annotations

import contextlib

from gpytorch.kernels import Kernel, ProductKernel
from gpytorch.lazy import LazyEvaluatedKernelTensor
from linear_operator.operators import InterpolatedLinearOperator, LinearOperator, RootLinearOperator

from .dense_warning import warn_of_dense
from .family import family
from .prediction import FeaturePredictionStrategy
from .random_feature_kernel import RandomFeatureKernel


def contains_features(kernel: Kernel) -> bool:
    """Whether a part of a kernel has random features."""
    return any(isinstance(part, RandomFeatureKernel) for part in kernel.modules())


def featured(covariance: LinearOperator) -> LinearOperator:
    """The lazy covariance of a composition of GPyTorch as that of the kernel with the same matrix that keeps features.

    Where there is none it is returned as it is. A product of kernels with random features is that of their matrices,
    which :func:`with_features` estimates feature by feature: its operators multiply all features with all.

    :param covariance: (..., N, M), evaluated or lazy.
    """
    if not isinstance(covariance, LazyEvaluatedKernelTensor) or not contains_features(covariance.kernel):
        return covariance
    known = family(covariance.kernel)
    is_kept = isinstance(known.unscaled, RandomFeatureKernel)
    if is_kept or not known.has_features or _multiplies_estimates(covariance.kernel):
        return covariance
    kernel = None
    with contextlib.suppress(ValueError):  # such as complex features of several tasks
        kernel = known.with_features()
    return covariance if kernel is None else covariance.__class__(covariance.x1, covariance.x2, kernel=kernel)


def _multiplies_estimates(kernel: Kernel) -> bool:
    products = (p for p in kernel.modules() if isinstance(p, ProductKernel) and not isinstance(p, RandomFeatureKernel))
    return any(sum(contains_features(part) for part in product.kernels) > 1 for product in products)


def evaluated(covariance: LinearOperator) -> LinearOperator:
    """The evaluated covariance, by its features where it has some; one that has lost them is warned of once."""
    result = covariance.evaluate_kernel()
    is_lazy = isinstance(covariance, LazyEvaluatedKernelTensor)
    if is_lazy and not isinstance(result, _STRUCTURED) and contains_features(covariance.kernel):
        name = type(covariance.kernel).__name__
        warn_of_dense(
            covariance.kernel,
            f"{name} is dense, at O(N^3), although parts of it have features; approximate every part, and take "
            "rfgp.kernels.with_features(kernel) in its place",
        )
    return result


_STRUCTURED = (RootLinearOperator, InterpolatedLinearOperator)
"""Features, and what GPyTorch's own approximations make of a kernel inside."""


class CompositionPredictionStrategy(FeaturePredictionStrategy):
    """Predictions in weight space with a composition of GPyTorch."""

    def evaluated(self, covariance: LinearOperator) -> LinearOperator:
        return evaluated(featured(covariance))
