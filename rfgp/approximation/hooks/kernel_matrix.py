"""Matrices of kernels with features, as operators that GPyTorch takes."""

from __future__ import annotations

import functools
from typing import Any

import torch
from linear_operator import to_dense, to_linear_operator
from linear_operator.operators import DiagLinearOperator, LinearOperator
from torch import Tensor

from ..._support import checks
from ..._support.torch_names import are_equal
from ...inference.posterior.covariance import ResidualCovariance
from ..maps import maps_kept_on_error
from .feature_operator import FeatureCrossLinearOperator, FeatureLinearOperator, LazyFeatureCrossLinearOperator
from .output_features import OutputFeatures


def kernel_matrix(kernel: Any, x1: Tensor, x2: Tensor, diag: bool) -> Tensor | LinearOperator:
    """The matrix of a kernel with features at selected inputs, as an operator that knows them, or its diagonal."""
    for x in (x1, x2):
        checks.inputs(x)
    same = _are_same(x1, x2)
    if diag:
        left, right = _pair(kernel, x1, None if same else x2)
        return (to_dense(left) * to_dense(right)).sum(-1)
    if same:
        residual = functools.partial(kernel.family.active_residual, x1)
        raises_noise = kernel.frequency_grid is not None and not kernel.includes_residual
        return FeatureLinearOperator(_pair(kernel, x1, None)[0], residual, raises_noise)
    outputs = kernel.num_outputs_per_input(x1, x2)
    batch_shape = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2], kernel.batch_shape)
    size = torch.Size((*batch_shape, outputs * x1.shape[-2], outputs * x2.shape[-2]))
    return LazyFeatureCrossLinearOperator(x1, x2, functools.partial(_cross, kernel), size)


def with_residual(
    family: Any, matrix: Tensor | LinearOperator, x1: Tensor, x2: Tensor, diag: bool
) -> Tensor | LinearOperator:
    """A matrix of selected inputs, or its diagonal, and the covariance that the features leave over at equal inputs."""
    residual: ResidualCovariance | None = family.active_residual(x1)
    if residual is None:
        return matrix
    same = _are_same(x1, x2)
    if diag:
        variance = residual.variance()
        if same:
            return to_dense(matrix) + variance
        is_equal = (x1 == x2).all(-1).to(variance)
        return to_dense(matrix) + variance * is_equal.repeat_interleave(residual.num_outputs, -1)
    if same and residual.num_outputs == 1:
        diagonal: LinearOperator = matrix + DiagLinearOperator(residual.variance().expand(matrix.shape[:-1]))
        return diagonal
    places = _places(x1, x2)
    if not bool(torch.isin(*places).any()):
        return matrix
    is_equal = (places[0].unsqueeze(-1) == places[1].unsqueeze(-2)).to(residual.variances)
    blocks = torch.einsum("...ntu,...nm->...ntmu", residual.dense(), is_equal).flatten(-2).flatten(-3, -2)
    return to_linear_operator(to_dense(matrix) + blocks)


def _are_same(x1: Tensor, x2: Tensor) -> bool:
    return x1 is x2 or (x1.shape == x2.shape and are_equal(x1, x2))


def _places(x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers of inputs (..., N, d) and (..., M, d), which are the same for equal ones."""
    rows = torch.cat([x.detach().reshape(-1, x.shape[-1]) for x in (x1, x2)])
    first, second = rows.unique(dim=0, return_inverse=True)[1].split([x.shape[:-1].numel() for x in (x1, x2)])
    return first.view(x1.shape[:-1]), second.view(x2.shape[:-1])


def _cross(kernel: Any, x1: Tensor, x2: Tensor) -> LinearOperator:
    left, right = _pair(kernel, x1, x2)
    return FeatureCrossLinearOperator(left, right.mT)


def _pair(kernel: Any, x1: Tensor, x2: Tensor | None) -> tuple[Tensor | LinearOperator, Tensor | LinearOperator]:
    """Checked real features of two sets of selected inputs, or of one; those of many outputs as operators."""
    with maps_kept_on_error(kernel):
        left = _features(kernel, x1)
        return left, left if x2 is None else _features(kernel, x2)


def _features(kernel: Any, x: Tensor) -> Tensor | OutputFeatures:
    family = kernel.family
    if not family.has_output_factor:
        features: Tensor = checks.no_overflow(family.matrix_features(checks.finite(x)), x, kernel)
        return features
    scalar = checks.no_overflow(family.active_features(checks.finite(x)), x, kernel)
    return OutputFeatures.of(scalar, family.outputs_factor())
