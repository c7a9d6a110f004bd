"""The quadratic form of an evidence from one more pass over the rows, where sums alone have lost its digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ...linalg import row_chunks
from ..posterior.factor import OutputFactor
from ..posterior.normal_equations import NormalEquations, WeightedSums
from ..posterior.posterior import refined_mean
from ..posterior.products import feature_product, transposed_product
from .recomputation import recomputed_by_chunk
from .rows import Part, Rows
from .statistics import GramStatistics
from .sufficient_statistics import SufficientStatistics

if TYPE_CHECKING:
    from .accumulation import SummedKernel


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
        kernel: SummedKernel,
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
        products = _Products(self, name == "target_gram", len(shift) + 1)
        by_row, shared = (self.x, self.y, self.rows.weights, self.rows.groups), (weights, self.coefficients)
        total = torch.zeros_like(sums[name])
        with torch.no_grad():
            for part in parts:
                rows = self.rows.take(part)
                total += products(self.x[part], self.y[part], rows.weights, rows.groups, *shared)[0]
        parameters = [*self.kernel.feature_parameters()]
        (total,) = recomputed_by_chunk([total], products, parts, by_row, shared, parameters)
        return GramStatistics.from_sums({**sums, name: total}, shift)


class _Products:
    """Weighted products of residuals with themselves, or of features with residuals."""

    def __init__(self, data: ResidualPass, is_square: bool, num_columns: int) -> None:
        self.kernel, self.basis, self.num_groups = data.kernel, data.basis, data.rows.num_groups
        self.is_square, self.num_columns = is_square, num_columns

    def __call__(
        self, x: Tensor, y: Tensor, weights: Tensor | None, groups: Tensor | None, mean: Tensor, coefficients: Tensor
    ) -> tuple[Tensor]:
        """The sum over a chunk of rows."""
        features = self.kernel.scalar_features(x)
        predicted = self.basis(x).double() @ coefficients + feature_product(features, mean)
        residual = y.to(predicted.dtype) - predicted
        targets = torch.nn.functional.pad(residual, (0, self.num_columns - residual.shape[-1]))
        rows = Rows(y, weights, groups=groups, num_groups=self.num_groups)
        weighted = rows.all_weights().unsqueeze(-1) * targets.unsqueeze(-2)
        product = transposed_product(targets if self.is_square else features, weighted.flatten(-2))
        return (product.unflatten(-1, weighted.shape[-2:]).movedim(-2, 0),)
