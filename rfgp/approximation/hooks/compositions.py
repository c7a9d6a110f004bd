"""The features of GPyTorch's own compositions of kernels with features, such as ``AdditiveKernel(a, b)``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from gpytorch.kernels import Kernel, ProductKernel, ScaleKernel
from gpytorch.lazy import LazyEvaluatedKernelTensor
from linear_operator.operators import InterpolatedLinearOperator, LinearOperator, RootLinearOperator

from ..._support.gpytorch_names import tracks_gradients
from ..family import family
from ..feature_kernel import with_features
from ..registry import is_approximated
from ..width_warning import warn_of_dense


def contains_features(kernel: Kernel) -> bool:
    """Whether a part of a kernel has random features."""
    return any(kernels_with_features(kernel))


def kernels_with_features(module: torch.nn.Module) -> Iterator[Any]:
    """The kernels with features in a module."""
    return (part for part in module.modules() if is_approximated(part))


def include_residual(module: torch.nn.Module) -> None:
    """Let matrices of the kernels in a module have the variance that the features leave over."""
    for kernel in kernels_with_features(module):
        kernel.includes_residual = True


def featured(covariance: LinearOperator) -> LinearOperator:
    """The lazy covariance (..., N, M) of a composition of GPyTorch as that of a kernel which keeps the features.

    Others, and products of kernels with random features, are returned as they are.
    """
    if not isinstance(covariance, LazyEvaluatedKernelTensor) or not contains_features(covariance.kernel):
        return covariance
    composition = family(covariance.kernel)
    is_kept = is_approximated(_unscaled(covariance.kernel))
    if is_kept or not composition.has_features or _multiplies_estimates(covariance.kernel):
        return covariance
    try:
        kernel = with_features(covariance.kernel)
    except ValueError:  # such as complex features of several tasks
        return covariance
    if any(part.includes_residual for part in kernels_with_features(covariance.kernel)):
        include_residual(kernel)
    with torch.set_grad_enabled(tracks_gradients(covariance)):
        return covariance.__class__(covariance.x1, covariance.x2, kernel=kernel, **covariance.params)


def _unscaled(kernel: Kernel) -> Kernel:
    """The kernel inside output scales."""
    return _unscaled(kernel.base_kernel) if isinstance(kernel, ScaleKernel) else kernel


def _multiplies_estimates(kernel: Kernel) -> bool:
    """Whether a product of GPyTorch's, outside of kernels with features, has more than one factor with features."""
    if is_approximated(kernel):
        return False
    if isinstance(kernel, ProductKernel) and sum(contains_features(part) for part in kernel.kernels) > 1:
        return True
    return any(_multiplies_estimates(part) for part in kernel.children() if isinstance(part, torch.nn.Module))


def warn_of_lost_features(covariance: LinearOperator) -> None:
    """Warn, once, of a lazy covariance that comes out dense although parts of its kernel have features."""
    if not isinstance(covariance, LazyEvaluatedKernelTensor) or not contains_features(covariance.kernel):
        return
    if not isinstance(covariance.evaluate_kernel(), RootLinearOperator | InterpolatedLinearOperator):
        warn_of_dense(
            covariance.kernel,
            f"{type(covariance.kernel).__name__} is dense, at O(N^3), although parts of it have features; approximate "
            "every part, and take rfgp.approximation.with_features(kernel) in its place",
        )
