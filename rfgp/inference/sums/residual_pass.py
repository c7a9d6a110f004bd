"""The quadratic form of an evidence from one more pass over the rows, where sums alone have lost its digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...linalg import row_chunks
from ..posterior.factor import OutputFactor
from ..posterior.normal_equations import NormalEquations, WeightedSums
from ..posterior.posterior import refined_mean
from ..posterior.products import feature_product, transposed_product
from .accumulation import ScalarFeatures
from .row_gradients import Pairs
from .rows import Part, Rows
from .statistics import GramStatistics
from .sufficient_statistics import SufficientStatistics
from .summation import sum_over_rows


class TrainingRows(NamedTuple):
    """The rows behind some statistics: inputs, targets (N, T) in columns, and their weights and groups."""

    x: Tensor
    y: Tensor
    rows: Rows

    @classmethod
    def of(cls, x: Tensor, rows: Rows, num_outputs: int) -> TrainingRows:
        """What is known of checked rows: their first columns are the targets, which weights of zero leave out."""
        return cls(x, rows.targets[..., :num_outputs], rows)

    def observed(self) -> TrainingRows:
        """The rows of weights that are not zero."""
        if self.rows.weights is None:
            return self
        is_in = (self.rows.weights.detach() != 0).reshape(len(self.x), -1).any(-1)
        return self if bool(is_in.all()) else TrainingRows(self.x[is_in], self.y[is_in], self.rows.take(is_in))


class ResidualPass:
    r"""Sums over residuals :math:`r = y - m(x) - \phi(x) w` of given weights, in chunks of rows.

    The form :math:`r^H S^{-1} r + \|w\|^2` has positive terms and is least at the posterior mean: at tiny noise it
    keeps
    digits that :math:`y^H S^{-1} y - h^H B^{-1} h` loses, and its gradient needs no derivative of w.

    :param basis: gives the columns (n, k) of the mean function at (n, d).
    :param coefficients: those of the mean function in its basis, (k, T), in float64.
    """

    def __init__(
        self,
        kernel: ScalarFeatures,
        factor: OutputFactor,
        data: TrainingRows,
        basis: Callable[[Tensor], Tensor],
        coefficients: Tensor,
    ) -> None:
        self.kernel, self.factor, self.basis, self.coefficients = kernel, factor, basis, coefficients
        self.x, self.y, self.rows = data

    def quadratic(
        self, statistics: SufficientStatistics, sums_of: Callable[[SufficientStatistics], WeightedSums]
    ) -> Tensor:
        """The quadratic form at the posterior mean, refined once; differentiable."""

        def gradient(weights: Tensor) -> Tensor:
            residuals = self._replaced(statistics, "cross", self._by_output(weights))
            return NormalEquations(sums_of(residuals), self.factor).cross - weights

        with torch.no_grad():
            posterior = NormalEquations(sums_of(statistics), self.factor).posterior()
        weights = refined_mean(posterior, gradient)
        residuals = self._replaced(statistics, "target_gram", self._by_output(weights))
        return sums_of(residuals).quadratic + torch.linalg.vector_norm(weights).square()

    def _by_output(self, weights: Tensor) -> Tensor:
        return self.factor.scalar_weights(weights).squeeze(-1)

    def _replaced(self, statistics: SufficientStatistics, name: str, weights: Tensor) -> SufficientStatistics:
        """The statistics with one of the sums over targets replaced by that over residuals, without other columns."""
        sums, shift = statistics.sums(), torch.zeros_like(statistics.shift)
        parts: list[Part] = [*row_chunks(len(self.x), len(weights), self.x.element_size())]
        (total,) = sum_over_rows(
            _Products(self, name == "target_gram", len(shift) + 1),
            torch.zeros_like(sums[name]),
            parts,
            by_row=(self.x, self.y, self.rows.weights, self.rows.groups),
            shared=(weights, self.coefficients),
            parameters=[*self.kernel.feature_parameters()],
        )
        return GramStatistics.from_sums({**sums, name: total}, shift)


class _Products:
    """Weighted products of residuals with themselves, or of features with residuals, as what is summed."""

    def __init__(self, data: ResidualPass, is_square: bool, num_columns: int) -> None:
        self.kernel, self.basis, self.num_groups = data.kernel, data.basis, data.rows.num_groups
        self.is_square, self.num_columns = is_square, num_columns

    def _of_chunk(
        self, x: Tensor, y: Tensor, weights: Tensor | None, groups: Tensor | None, mean: Tensor, coefficients: Tensor
    ) -> Tensor:
        features = self.kernel.scalar_features(x)
        predicted = self.basis(x).double() @ coefficients + feature_product(features, mean)
        residual = y.to(predicted.dtype) - predicted
        targets = torch.nn.functional.pad(residual, (0, self.num_columns - residual.shape[-1]))
        rows = Rows(y, weights, groups=groups, num_groups=self.num_groups)
        weighted = rows.all_weights().unsqueeze(-1) * targets.unsqueeze(-2)
        product = transposed_product(targets if self.is_square else features, weighted.flatten(-2))
        return product.unflatten(-1, weighted.shape[-2:]).movedim(-2, 0)

    def add(self, total: Tensor, *chunk: Any) -> None:
        total += self._of_chunk(*chunk)

    def sums(self, total: Tensor) -> tuple[Tensor, ...]:
        return (total,)

    def pullback(self, *gradients: Tensor) -> Callable[..., Pairs]:
        return lambda *chunk: [(self._of_chunk(*chunk), gradients[0])]
