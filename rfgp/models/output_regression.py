"""Regression of several outputs on scalar features: posterior, evidence and predictions of a weight-space model."""

from __future__ import annotations

import functools
from typing import Any

import torch
from gpytorch.means import Mean, MultitaskMean
from torch import Tensor

from .. import _checks
from ..kronecker import KroneckerPosterior
from ..linalg import is_ill_conditioned, log_determinant_and_quadratic, row_chunks
from ..normal import MultitaskMultivariateNormal, MultivariateNormal
from ..operators import Operator
from ..output_covariance import OutputCovariance
from ..output_factor import OutputFactor
from ..output_system import OutputSystem
from ..posterior import WeightPosterior, feature_product, plus_residual
from ..statistics import GramStatistics
from .mean_basis import basis, constant_part, output_coefficients
from .output_observations import OutputObservations, OutputSums
from .residual_pass import ResidualPass, TrainingRows


class OutputRegression:
    r"""A field :math:`f_t(x) = \psi(x) W_t + m_t(x)` of T outputs, whose weights follow from scalar statistics.

    :param kernel: an operator-valued kernel with features, whose maps are made.
    :param mean: the mean function.
    :param observations: what the likelihood makes of rows.
    """

    def __init__(self, kernel: Any, mean: Mean, observations: OutputObservations) -> None:
        self.kernel, self.mean, self.observations = kernel, mean, observations
        self.has_tasks = hasattr(observations.likelihood, "num_tasks")
        """Whether the likelihood is one of several tasks, of which there may be a single one."""

    def _factor(self, operator: Operator | None = None) -> OutputFactor:
        factor: OutputFactor = self.kernel.output_factor(operator)
        return factor.double()

    def _sums(self, statistics: GramStatistics) -> OutputSums:
        coefficients = output_coefficients(self.mean, self.observations.num_outputs, statistics.count.device)
        return self.observations.sums(statistics, coefficients)

    def posterior(self, statistics: GramStatistics, tracks: bool) -> WeightPosterior | KroneckerPosterior:
        """The posterior of the weights; from two small spectra where the regression is separable.

        :param statistics: the sums over the training data.
        :param tracks: whether gradients are to run back through it.
        """
        return OutputSystem(self._sums(statistics).groups, self._factor()).posterior(tracks)

    def log_marginal_likelihood(self, statistics: GramStatistics, data: TrainingRows | None = None) -> Tensor:
        r"""The log evidence; for separable regressions from two small spectra.

        There :math:`h^\top B^{-1} h` is taken as :math:`2 m^\top h - m^\top B m` at the posterior mean m, where the
        derivative in m is zero: its gradient needs no derivative of m, and none of an eigenvector.

        :param statistics: the sums over the training data.
        :param data: the rows, where they are at hand, for a quadratic form that keeps its digits at tiny noise.

        Source: errata, identities 2 and 3.
        """
        sums = self._sums(statistics)
        system = OutputSystem(sums.groups, self._factor())
        parts = system.separable()
        if parts is None:
            matrix = system.matrix
            log_det, explained = log_determinant_and_quadratic(matrix, system.cross)
            is_lossy = is_ill_conditioned(matrix.diagonal())
        else:
            gram, outputs, cross = parts
            posterior = system.posterior()
            mean = posterior.mean.reshape(cross.shape)
            explained = 2.0 * (mean * cross).sum() - mean.square().sum() - (mean * (gram @ mean @ outputs)).sum()
            log_det = system.log_determinant()
            is_lossy = posterior.is_ill_conditioned
        quadratic = sums.quadratic - explained
        if data is not None and is_lossy:
            quadratic = self._from_residuals(statistics, data)
        constant = self.observations.constant * self.observations.num_values(statistics)
        return -0.5 * (quadratic + log_det + sums.log_noise + constant)

    def _from_residuals(self, statistics: GramStatistics, data: TrainingRows) -> Tensor:
        """The quadratic form from one more pass over the rows."""
        factor, known = self._factor(), self.observations
        values = output_coefficients(self.mean, known.num_outputs, statistics.count.device)
        with torch.no_grad():
            posterior = self.posterior(statistics, tracks=False)
        return ResidualPass(self.kernel, data, lambda x: basis(self.mean, x).double() @ values).quadratic(
            statistics,
            posterior,
            lambda weights: factor.scalar_weights(weights).squeeze(-1),
            lambda sums: OutputSystem(known.sums(sums, values).groups, factor).cross,
            lambda sums: known.sums(sums, values).quadratic,
        )

    def distribution(
        self, x: Tensor, posterior: WeightPosterior | KroneckerPosterior, operator: Operator | None
    ) -> MultivariateNormal:
        """The distribution of the field, or of what an operator makes of it, at inputs (N, d)."""
        if x.dim() != 2:
            raise ValueError(f"expected inputs of shape (N, d) for several outputs, got {tuple(x.shape)}; flatten them")
        factor = self._factor(operator)
        mean = self._values(x, factor, posterior.mean, operator)
        features = functools.partial(scalar_features, self.kernel, torch.is_grad_enabled())
        residual = self.kernel.residual_variance(x) if operator is None else None
        covariance = plus_residual(OutputCovariance(x.clone(), posterior, factor, features), residual)
        if factor.num_outputs == 1 and (operator is not None or not self.has_tasks):
            return MultivariateNormal(mean.squeeze(-1), covariance)
        return MultitaskMultivariateNormal(mean, covariance)

    def function(self, weights: Tensor, x: Tensor) -> Tensor:
        """The field of weights (K, 1) at x (..., N, d): (..., N, T), or (..., N) for one that is no task."""
        values = self._values(x, self._factor(), weights, None)
        return values.squeeze(-1) if values.shape[-1] == 1 and not self.has_tasks else values

    def _values(self, x: Tensor, factor: OutputFactor, weights: Tensor, operator: Operator | None) -> Tensor:
        scalar_weights = factor.scalar_weights(weights).squeeze(-1)
        chunks = row_chunks(x.shape[-2], factor.num_scalar)
        parts = [feature_product(self.kernel.scalar_features(x[..., rows, :]), scalar_weights) for rows in chunks]
        values = _checks.no_overflow(torch.cat(parts, dim=-2), x)
        return (values + self._mean(x, operator)).to(x.dtype)

    def _mean(self, x: Tensor, operator: Operator | None) -> Tensor:
        if operator is not None:
            constants = constant_part(self.mean, self.observations.num_outputs).to(x.device)
            return operator.of_constant(constants, self.kernel.input_dim)
        mean = self.mean(x)
        return mean if isinstance(self.mean, MultitaskMean) else mean.unsqueeze(-1)


def check_size(factor: OutputFactor, num_groups: int) -> None:
    """Raise a ValueError where the matrices of the posterior would not fit in memory.

    :param factor: the factor of the outputs.
    :param num_groups: the number of groups of rows; with one, separable kernels need no large matrix.
    """
    if factor.covariance_root is None or num_groups > 1:
        what = f"a posterior of {factor.num_columns} weights"
        _checks.fits_in_memory(24.0 * factor.num_columns**2, what, "use fewer features, or complete rows")


def scalar_features(kernel: Any, tracks: bool, x: Tensor) -> Tensor:
    """The scalar features of a kernel, made later with gradients where these were enabled at first."""
    with torch.set_grad_enabled(tracks and torch.is_grad_enabled()):
        features: Tensor = kernel.scalar_features(x)
        return features
