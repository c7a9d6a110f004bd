"""Regression on landmark features and on what they leave over inside blocks of near rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from gpytorch.means import Mean
from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator, SumLinearOperator
from linear_operator.utils.memoize import cached
from torch import Tensor

from ..._support import checks
from ...functionals import Operator
from ...likelihoods import ComplexNormal, MultivariateNormal
from ...linalg.cholesky_factor import factor_of
from ..noise import NoiseModel
from ..noise.base import ObservedTargets, residual_columns
from ..posterior.covariance import CholeskyRoot, Index, WeightSpaceCovariance
from ..posterior.posterior import GaussianPosterior
from ..posterior.products import feature_product
from ..posterior.regression import Regression
from ..sums.mean_basis import coefficients
from ..sums.residual_pass import TrainingRows
from ..sums.rows import Rows
from ..sums.sufficient_statistics import SufficientStatistics
from .draws import LocalDraws, ResidualDraws, draws_of
from .prediction import LocalConditioning, LocalFeatures
from .residual import ResidualProcess
from .rows import LocalRows
from .systems import OneOutput

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel


class WhitenedNoise(NoiseModel):
    """Noise of unit variance, in which that of a likelihood and the residual of features are contained."""

    def __init__(self, noise: NoiseModel) -> None:
        super().__init__(noise.targets)
        self.noise = noise

    def observations(self, x: Tensor, y: Tensor, noise: Tensor | None, basis: Tensor, is_all: bool) -> ObservedTargets:
        return self.noise.observations(x, y, noise, basis, is_all)

    def rows_of(self, observations: ObservedTargets) -> Rows:
        return self.noise.weigh(observations._replace(weights=None))

    def precisions(self, num_groups: int) -> list[Tensor | None]:
        return [None if p is None else torch.ones_like(p) for p in self.noise.precisions(num_groups)]

    def log_noise(self, statistics: SufficientStatistics) -> Tensor:
        return statistics.log_noise.sum()

    def smallest(self, rows: Rows) -> float:
        return self.noise.smallest(rows)

    def variances(self, rows: Rows) -> Tensor:
        return self.noise.variances(rows)


class LocalResidualCovariance(LinearOperator):
    """The lazy covariance of the residual at inputs (..., N, d) given the rows near them, zero between blocks.

    :param variance: its diagonal, (..., N).
    """

    def __init__(self, x: Tensor, variance: Tensor, conditioning: LocalConditioning) -> None:
        super().__init__(x, variance, conditioning=conditioning)
        self.x, self.variance, self.conditioning = x, variance, conditioning

    @property
    def dtype(self) -> torch.dtype:
        return self.x.dtype

    def _diagonal(self) -> Tensor:
        return self.variance

    def _matmul(self, rhs: Tensor) -> Tensor:
        if self.x.dim() > 2:
            return self.to_dense() @ rhs
        result = torch.zeros_like(rhs)
        with self._tracking():
            for points, covariance in self.conditioning.of_blocks(self.x):
                result[points] = covariance.to(rhs.dtype) @ rhs[points]
        return result

    def _tracking(self) -> torch.set_grad_enabled:
        """Gradients run back to the inputs alone."""
        return torch.set_grad_enabled(torch.is_grad_enabled() and self.x.requires_grad)

    def _size(self) -> torch.Size:
        return torch.Size((*self.variance.shape, self.variance.shape[-1]))

    def _transpose_nonbatch(self) -> LocalResidualCovariance:
        return self

    @cached(name="dense")
    def to_dense(self) -> Tensor:
        with self._tracking():
            return self.conditioning.covariance(self.x).to(self.dtype)

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        entries: Tensor = to_linear_operator(self.to_dense())._get_indices(row_index, col_index, *batch_indices)
        return entries

    def _getitem(self, row_index: Index, col_index: Index, *batch_indices: Index) -> Any:
        return to_linear_operator(self.to_dense())._getitem(row_index, col_index, *batch_indices)

    def _expand_batch(self, batch_shape: torch.Size) -> LinearOperator:
        return to_linear_operator(self.to_dense().expand(*batch_shape, *self.shape[-2:]))

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """Draws (S, ..., N)."""
        if self.x.dim() > 2:
            return draws_of(self.conditioning.covariance(self.x), num_samples).movedim(-1, 0).to(self.dtype)
        return ResidualDraws(self.conditioning, num_samples).at(self.x).mT.to(self.dtype)


class LocalCovariance(CholeskyRoot, SumLinearOperator):
    """The sum of the posterior covariance of features, and that of the residual."""

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        features, residual = self.linear_ops
        draws: Tensor = features.zero_mean_mvn_samples(num_samples)
        return draws + residual.zero_mean_mvn_samples(num_samples)


_BYTES = 2**28
"""Features of test points are kept for the covariance where they take at most so much memory."""


class LocalRegression(Regression):
    r"""A function :math:`f = \phi w + r + m` whose residual r is independent between blocks of near rows.

    .. math:: E f_* = g_* m_w + \mu_* + S (y_n - \mu_n), \qquad
        \mathrm{Var} f_* = g_* B^{-1} g_*^\top + R_{**} - S R_{n*}, \qquad g_* = \phi_* - S \Phi_n

    with :math:`S = R_{*n} (R_{nn} + \Sigma)^{-1}`. Given the rows of a point's block this is the posterior of the block
    model. Given its nearest rows it is continuous, and approximates the posterior of a residual without blocks.

    :param num_neighbors: how many of the nearest rows predictions are given; None for the block of each point.

    Source: errata, identity 7 of the last section.
    """

    kernel: FeatureKernel
    has_point_predictor: ClassVar[bool] = False

    def __init__(
        self,
        kernel: FeatureKernel,
        mean: Mean,
        noise: NoiseModel,
        rows: LocalRows,
        num_neighbors: int | None = None,
    ) -> None:
        super().__init__(kernel, mean, noise)
        self.local, self.num_neighbors = rows, num_neighbors

    @property
    def systems(self) -> OneOutput:
        """The one system that one output is."""
        return OneOutput(self.kernel, self.mean, self.noise)

    def solved(self, weights: Tensor) -> Tensor:
        r"""The rows :math:`(\Phi \Phi^\top + R + \Sigma)^{-1} (y - m)`, (N,), given the mean (D, 1) of weights."""
        residual, targets = ResidualProcess(self.kernel), self.systems.targets(self.local.columns)[0]
        result = torch.empty_like(targets)
        for block in self.local.partition.blocks:
            rows = block.to(targets.device)
            features = residual.features(self.local.x[rows])
            covariance = residual.covariance(self.local.x[rows], features) + torch.diag(self.local.variances[rows])
            error = targets[rows].unsqueeze(-1) - features @ weights
            result[rows] = torch.cholesky_solve(error, factor_of(covariance)).squeeze(-1)
        return result

    def log_marginal_likelihood(self, statistics: SufficientStatistics, data: TrainingRows | None = None) -> Tensor:
        return super().log_marginal_likelihood(statistics, data) + self.local.log_faded(self.systems)

    def distribution(
        self, x: Tensor, posterior: GaussianPosterior, operator: Operator | None = None
    ) -> MultivariateNormal | ComplexNormal:
        with torch.set_grad_enabled(torch.is_grad_enabled() and x.requires_grad):
            return self._distribution(x, posterior, operator)

    def _distribution(self, x: Tensor, posterior: GaussianPosterior, operator: Operator | None) -> MultivariateNormal:
        factor, flat = self.factor(operator), x.reshape(-1, x.shape[-1])
        conditioning = self.conditioning()
        chunks = flat.split(max(1, _BYTES // (8 * factor.num_scalar)))
        means, variances = [], []
        for chunk in chunks:
            near = conditioning.at(chunk)
            means.append(self.mean_given(chunk, near, factor.scalar_weights(posterior.mean).squeeze(-1)).squeeze(-1))
            variances.append(near.variance)
        mean = checks.no_overflow(torch.cat(means), x).to(x.dtype).reshape(x.shape[:-1])
        variance = torch.cat(variances).to(x.dtype).reshape(x.shape[:-1])
        if len(chunks) == 1:
            kept = near.features.to(x.dtype).reshape(*x.shape[:-1], -1)
            covariance: LinearOperator = WeightSpaceCovariance(kept, posterior, factor, _as_they_are)
        else:
            covariance = WeightSpaceCovariance(
                x.clone(), posterior, factor, lambda part: conditioning.at(part).features
            )
        residual = LocalResidualCovariance(x.clone(), variance, conditioning)
        return MultivariateNormal(mean, LocalCovariance(covariance, residual))

    def conditioning(self, dtype: torch.dtype = torch.float64) -> LocalConditioning:
        """How rows near a point tell of it, with covariances and products of a dtype."""
        return LocalConditioning(self.kernel, self.local, self.num_neighbors, dtype)

    def point_moments(
        self, x: Tensor, posterior: GaussianPosterior, has_variance: bool, conditioning: LocalConditioning
    ) -> tuple[Tensor, Tensor]:
        """Means and variances (N, 1) at points (N, d)."""
        factor, near = self.factor(), conditioning.at(x)
        mean = self.mean_given(x, near, factor.scalar_weights(posterior.mean).squeeze(-1))
        if not has_variance:
            return mean, mean
        return mean, near.variance.unsqueeze(-1) + posterior.function_variance(near.features, factor).unsqueeze(-1)

    def prior_variances(self, x: Tensor) -> Tensor:
        """The variances (N, 1) of the prior at points (N, d)."""
        scale: Tensor = self.kernel.exact_kernel(x, diag=True)
        return scale.unsqueeze(-1)

    def mean_given(self, x: Tensor, near: LocalFeatures, weights: Tensor) -> Tensor:
        """The functions of weights (D, S) at points (n, d) given the rows near them, (n, S), in float64."""
        columns = residual_columns(coefficients(self.mean, 1, x.device))
        values = feature_product(near.features, weights) + near.columns @ columns
        return values + self._mean_in_basis(x)

    def draws(self, weights: Tensor) -> LocalDraws:
        """The functions of draws of the weights (K, S), with draws of the residual."""
        return LocalDraws(self, weights)


def _as_they_are(features: Tensor) -> Tensor:
    return features
