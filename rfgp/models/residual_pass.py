"""The quadratic form of an evidence from one more pass over the rows, where sums alone have lost its digits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..kernels import RandomFeatureKernel
from ..kronecker import KroneckerPosterior
from ..linalg import row_chunks
from ..posterior import WeightPosterior, feature_product, refined_mean, transposed_product
from ..statistics import GramStatistics
from .observations import Rows


class TrainingRows(NamedTuple):
    """The rows that statistics were computed from: inputs, targets (NaN where missing), and what they added."""

    x: Tensor
    y: Tensor
    rows: Rows


class ResidualPass:
    r"""Sums over residuals :math:`r = y - m(x) - \phi(x) w` of given weights, in chunks of rows.

    The form :math:`r^H S^{-1} r + \|w\|^2` is a sum of positive terms, least at the posterior mean of the weights. So
    nothing cancels, and its gradient needs no derivative of w. The one from sums alone, :math:`y^H S^{-1} y - h^H
    B^{-1} h`, is a small difference of large numbers where the noise is tiny.

    :param kernel: the kernel whose scalar features are summed.
    :param data: the rows.
    :param mean: the mean function at (n, d), (n, T) in float64.
    """

    def __init__(self, kernel: RandomFeatureKernel, data: TrainingRows, mean: Callable[[Tensor], Tensor]) -> None:
        self.kernel, self.mean = kernel, mean
        self.x, y, self.rows = data
        self.y = y if y.is_complex() else y.nan_to_num(0.0)

    def quadratic(
        self,
        statistics: GramStatistics,
        posterior: WeightPosterior | KroneckerPosterior,
        scalar_weights: Callable[[Tensor], Tensor],
        cross: Callable[[GramStatistics], Tensor],
        form: Callable[[GramStatistics], Tensor],
    ) -> Tensor:
        """The quadratic form at the posterior mean, refined once; differentiable.

        :param statistics: the sums over the rows.
        :param posterior: the posterior of the weights.
        :param scalar_weights: takes weights (K, 1) and returns those of the scalar features, (n, T).
        :param cross: takes statistics and returns the right-hand side of the posterior mean.
        :param form: takes statistics and returns the quadratic form of their targets.
        """

        def gradient(weights: Tensor) -> Tensor:
            return cross(self._replaced(statistics, "cross", scalar_weights(weights))) - weights

        weights = refined_mean(posterior, gradient)
        sums = self._replaced(statistics, "outer", scalar_weights(weights))
        return form(sums) + torch.linalg.vector_norm(weights).square()

    def _replaced(self, statistics: GramStatistics, name: str, weights: Tensor) -> GramStatistics:
        """The statistics with one of the sums over targets replaced by that over residuals, without other columns."""

        def chunk(x: Tensor, y: Tensor, rows: Rows) -> Tensor:
            features = self.kernel.scalar_features(x)
            residual = self._residual(features, x, y, weights)
            missing = len(statistics.shift) + 1 - residual.shape[-1]
            targets = torch.nn.functional.pad(residual, (0, missing))
            weighted = _group_weights(rows, len(x)).unsqueeze(-1) * targets.unsqueeze(-2)
            left = targets if name == "outer" else features
            product = transposed_product(left, weighted.flatten(-2))
            return product.unflatten(-1, weighted.shape[-2:]).movedim(-2, 0)

        parts = []
        for part in row_chunks(len(self.x), len(weights), self.x.element_size()):
            arguments = self.x[part], self.y[part], self.rows.take(part)
            if torch.is_grad_enabled():
                parts.append(checkpoint(chunk, *arguments, use_reentrant=False, preserve_rng_state=False))
            else:
                parts.append(chunk(*arguments))
        sums = {**statistics.sums(), name: functools.reduce(torch.add, parts)}
        return GramStatistics.from_sums(sums, torch.zeros_like(statistics.shift))

    def _residual(self, features: Tensor, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        predicted = self.mean(x) + feature_product(features, weights)
        return y.to(predicted.dtype).reshape(len(x), -1) - predicted


def _group_weights(rows: Rows, num_rows: int) -> Tensor:
    """The weight of every row in every group, (N, G), in float64."""
    ones = torch.ones(num_rows, dtype=torch.float64, device=rows.targets.device)
    weights = ones if rows.weights is None else rows.weights.double()
    if weights.dim() == 2:
        return weights
    if rows.groups is None:
        return weights.unsqueeze(-1)
    return weights.unsqueeze(-1) * torch.nn.functional.one_hot(rows.groups, rows.num_groups)
