"""The quadratic form of an evidence from one more pass over the rows, where sums alone have lost its digits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..linalg import row_chunks
from .accumulation import ScalarFeatures
from .factor import OutputFactor
from .posterior import refined_mean
from .products import feature_product, transposed_product
from .rows import Rows
from .statistics import GramStatistics
from .sums import WeightedSums
from .system import WeightSystem


class TrainingRows(NamedTuple):
    """The rows behind some statistics: inputs, targets (NaN where missing), and their weights and groups."""

    x: Tensor
    y: Tensor
    rows: Rows


class ResidualPass:
    r"""Sums over residuals :math:`r = y - m(x) - \phi(x) w` of given weights, in chunks of rows.

    The form :math:`r^H S^{-1} r + \|w\|^2` is a sum of positive terms, least at the posterior mean of the weights. So
    nothing cancels, and its gradient needs no derivative of w. The one from sums alone, :math:`y^H S^{-1} y - h^H
    B^{-1} h`, is a small difference of large numbers where the noise is tiny.

    :param kernel: the kernel whose scalar features are summed.
    :param factor: how these become the features of the outputs, in float64.
    :param data: the rows.
    :param mean: the mean function at (n, d), (n, T) in float64.
    """

    def __init__(
        self, kernel: ScalarFeatures, factor: OutputFactor, data: TrainingRows, mean: Callable[[Tensor], Tensor]
    ) -> None:
        self.kernel, self.factor, self.mean = kernel, factor, mean
        self.x, y, self.rows = data
        self.y = y if y.is_complex() else y.nan_to_num(0.0)

    def quadratic(self, statistics: GramStatistics, sums_of: Callable[[GramStatistics], WeightedSums]) -> Tensor:
        """The quadratic form at the posterior mean, refined once; differentiable.

        :param statistics: the sums over the rows.
        :param sums_of: takes statistics and returns the weighted sums of the only regression.
        """

        def gradient(weights: Tensor) -> Tensor:
            residuals = self._replaced(statistics, "cross", self._by_output(weights))
            return WeightSystem(sums_of(residuals), self.factor).cross - weights

        with torch.no_grad():
            posterior = WeightSystem(sums_of(statistics), self.factor).posterior()
        weights = refined_mean(posterior, gradient)
        residuals = self._replaced(statistics, "target_gram", self._by_output(weights))
        return sums_of(residuals).quadratic + torch.linalg.vector_norm(weights).square()

    def _by_output(self, weights: Tensor) -> Tensor:
        return self.factor.scalar_weights(weights).squeeze(-1)

    def _replaced(self, statistics: GramStatistics, name: str, weights: Tensor) -> GramStatistics:
        """The statistics with one of the sums over targets replaced by that over residuals, without other columns."""

        def chunk(x: Tensor, y: Tensor, rows: Rows) -> Tensor:
            features = self.kernel.scalar_features(x)
            residual = self._residual(features, x, y, weights)
            missing = len(statistics.shift) + 1 - residual.shape[-1]
            targets = torch.nn.functional.pad(residual, (0, missing))
            weighted = rows.all_weights().unsqueeze(-1) * targets.unsqueeze(-2)
            left = targets if name == "target_gram" else features
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
