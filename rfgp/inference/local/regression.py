"""Regression on landmark features and on what they leave over inside blocks of near rows."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from gpytorch.means import Mean
from linear_operator.operators import LinearOperator
from torch import Tensor

from ..._support import checks
from ...functionals import Operator
from ...likelihoods import ComplexNormal, MultivariateNormal
from ...linalg.cholesky_factor import factor_of
from ..noise import NoiseModel
from ..noise.base import residual_columns
from ..posterior.covariance import WeightSpaceCovariance
from ..posterior.posterior import GaussianPosterior
from ..posterior.products import feature_product
from ..posterior.regression import Regression
from ..sums.mean_basis import coefficients
from ..sums.residual_pass import TrainingRows
from ..sums.sufficient_statistics import SufficientStatistics
from .covariance import LocalCovariance, ResidualCovariance
from .draws import LocalDraws
from .one_output import OneOutput
from .prediction import LocalConditioning, LocalFeatures
from .residual import ResidualProcess
from .rows import LocalRows

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

    has_point_predictor: ClassVar[bool] = False

    def __init__(
        self, kernel: Any, mean: Mean, noise: NoiseModel, rows: LocalRows, num_neighbors: int | None = None
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
        residual = ResidualCovariance(x.clone(), variance, conditioning)
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
