"""Regression on random features: posterior, evidence and predictions of a model, from its statistics."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from gpytorch.means import Mean
from linear_operator.operators import LinearOperator, RootLinearOperator
from torch import Tensor

from ..._support import checks
from ...functionals import Operator
from ...likelihoods import ComplexNormal, MultitaskMultivariateNormal, MultivariateNormal
from ...linalg import accurate_dtype, dense_evidence, joined, row_chunks
from ..noise import NoiseModel
from ..noise.base import residual_columns
from ..sums.grid_statistics import grid_of, is_wide
from ..sums.mean_basis import basis, coefficients, constant_part, mean_values
from ..sums.residual_pass import ResidualPass, TrainingRows
from ..sums.statistics import with_amplitudes
from ..sums.sufficient_statistics import SufficientStatistics
from .covariance import WeightSpaceCovariance
from .draws import FeatureDraws, FunctionDraws, detached
from .factor import KroneckerFactor, OutputFactor
from .grid_draws import GridDraws
from .normal_equations import Equations
from .posterior import GaussianPosterior
from .wide_grid import WideEquations

if TYPE_CHECKING:
    from ..sums.accumulation import SummedKernel


class Regression:
    r"""Functions :math:`f_t(x) = \psi(x) W_t + m_t(x)` of T outputs, whose weights follow from scalar statistics.

    :param has_trace: whether the last column of the targets is that of the trace of the variational bound.
    :param has_grid: whether the statistics are those of plain cosines and sines of a grid, without amplitudes.
    """

    has_point_predictor: ClassVar[bool] = True
    """Whether means and variances at single points follow from weights and features alone."""

    def __init__(
        self,
        kernel: SummedKernel,
        mean: Mean,
        noise: NoiseModel,
        has_trace: bool = False,
        has_grid: bool = False,
    ) -> None:
        self.kernel, self.mean, self.noise = kernel, mean, noise
        self.has_trace, self.has_grid = has_trace, has_grid
        self.is_wide = has_grid and is_wide(kernel, noise)
        """Whether there are more features of a grid than a dense matrix is formed for."""

    def factor(self, operator: Operator | None = None) -> OutputFactor:
        """How scalar features become those of the outputs, or of what an operator makes of them, in float64."""
        factor: Tensor | OutputFactor = self.kernel.output_factor(operator)
        if isinstance(factor, Tensor):
            return KroneckerFactor(factor.double(), self.kernel.num_scalar_features)
        return factor.double()

    def equations(self, statistics: SufficientStatistics, tracks: bool = False) -> Equations:
        """The normal equations of the weights; gradients run through the posterior if ``tracks``."""
        sums = self.of_features(statistics) if self.has_grid else statistics
        return self._equations(sums, self.factor(), tracks)

    def _equations(self, sums: SufficientStatistics, factor: OutputFactor, tracks: bool = False) -> Equations:
        coefficients = self._coefficients(sums.targets.cross.device)
        if self.is_wide:
            return WideEquations(self.noise, sums, grid_of(self.kernel)[1], factor, coefficients)
        return self.noise.equations(sums, factor, coefficients, tracks)

    def of_features(self, statistics: SufficientStatistics) -> SufficientStatistics:
        """The statistics of the features, from those of plain cosines and sines, which those of a wide grid stay."""
        amplitudes = self.kernel.summed_amplitudes if self.has_grid and not self.is_wide else None
        return statistics if amplitudes is None else with_amplitudes(statistics, amplitudes)

    def _coefficients(self, device: torch.device) -> Tensor:
        """The coefficients of the mean function in the columns behind the targets."""
        values = coefficients(self.mean, self.noise.num_outputs, device)
        return torch.nn.functional.pad(values, (0, 0, 0, 1)) if self.has_trace else values

    def posterior(self, statistics: SufficientStatistics, tracks: bool = False) -> GaussianPosterior:
        """The posterior of the weights, with gradients if ``tracks``; a batch of them for class labels."""
        return self.equations(statistics, tracks).posterior(tracks)

    def log_marginal_likelihood(self, statistics: SufficientStatistics, data: TrainingRows | None = None) -> Tensor:
        """The log evidence, summed over classes (errata, identities 1 to 3).

        :param data: the rows, if available, to keep digits at tiny noise, and to use their covariance if it is smaller.
        """
        share = 1.0 if self.noise.is_complex else 0.5
        constant = self.noise.num_systems * self.noise.num_values(statistics) * self.noise.constant
        factor, sums = self.factor(), self.of_features(statistics) if self.has_grid else statistics
        data = None if self.noise.is_batched or self.is_wide else data
        is_single = not self.noise.targets.has_columns
        if data is not None and is_single and len(data.x) <= sums.num_features:
            total = self._dense_terms(data, factor)
        else:
            terms = self._equations(sums, factor).evidence_terms()
            quadratic = terms.quadratic
            if data is not None and terms.is_ill_conditioned:
                quadratic = self._quadratic_from_rows(sums, data, factor)
            total = quadratic + terms.log_determinant
        return -share * (total + constant + self._trace(sums, factor))

    def _trace(self, statistics: SufficientStatistics, factor: OutputFactor) -> Tensor | float:
        """The weighted sum of the residual variances of the rows, where the evidence is the variational bound."""
        root = factor.covariance_root
        if not self.has_trace or root is None:
            return 0.0
        last = torch.zeros(len(statistics.shift), 1, dtype=torch.float64, device=root.device)
        last[-1] = 1.0
        return self.noise.weighted(statistics, last).quadratic * root.square().sum()

    def _dense_terms(self, data: TrainingRows, factor: OutputFactor) -> Tensor:
        """Quadratic form and log determinant of rows that are no more than the features, from their covariance."""
        data = data.observed()
        features = factor.features(self.kernel.scalar_features(data.x))
        residual = data.y.to(accurate_dtype(data.y.dtype)) - self._mean_in_basis(data.x)
        exact = features.to(accurate_dtype(features.dtype))
        quadratic, log_det = dense_evidence(exact, self.noise.variances(data.rows), residual)
        return quadratic.sum() + log_det

    def _quadratic_from_rows(
        self, statistics: SufficientStatistics, data: TrainingRows, factor: OutputFactor
    ) -> Tensor:
        """The quadratic form from one more pass over the rows."""
        values = coefficients(self.mean, self.noise.num_outputs, factor.device)
        rows = ResidualPass(self.kernel, factor, data, functools.partial(basis, self.mean), values)
        columns = residual_columns(self._coefficients(factor.device))
        return rows.quadratic(statistics, lambda sums: self.noise.weighted(sums, columns))

    def _mean_in_basis(self, x: Tensor) -> Tensor:
        """The mean function at (N, d), (N, T), in float64, differentiable in its parameters."""
        return basis(self.mean, x).double() @ coefficients(self.mean, self.noise.num_outputs, x.device)

    def distribution(
        self,
        x: Tensor,
        posterior: GaussianPosterior,
        operator: Operator | None = None,
    ) -> MultivariateNormal | ComplexNormal:
        """The distribution of the function, or of an operator of it, at x (..., N, d); (N, d) for several outputs."""
        kind = "class labels" if self.noise.is_batched else "several outputs"
        if x.dim() != 2 and (self.noise.is_batched or self.noise.targets.has_columns):
            raise ValueError(f"expected inputs of shape (N, d) for {kind}, got {tuple(x.shape)}; flatten the batch")
        factor, features = self.factor(operator), FeaturesAt(self.kernel, x)
        mean = self._values(features.x, factor, posterior.mean, operator, features).squeeze(-1)
        is_multitask = self.noise.targets.has_tasks and (operator is None or mean.shape[-1] > 1)
        mean = mean if is_multitask or mean.shape[-1] > 1 else mean.squeeze(-1)
        residual = self.kernel.residual_covariance(x) if operator is None else None
        if self.noise.is_complex:
            root = posterior.function_root(features(features.x), factor)
            return ComplexNormal(mean, covariance_root=root, diagonal=None if residual is None else residual.variance())
        if self.kernel.is_complex:
            root = posterior.function_root(features(features.x), factor)
            covariance: LinearOperator = RootLinearOperator(torch.cat([root.real, root.imag], dim=-1).to(x.dtype))
        else:
            covariance = WeightSpaceCovariance(features.x, posterior, factor, features)
        covariance = covariance if residual is None else residual.added_to(covariance)
        if is_multitask or factor.num_outputs > 1:
            return MultitaskMultivariateNormal(mean, covariance)
        return MultivariateNormal(mean, covariance)

    def leverages(self, x: Tensor, posterior: GaussianPosterior) -> Tensor:
        """The posterior variances of one output at inputs (N, d), without the residual variance, (N,)."""
        return posterior.function_variance(self.kernel.scalar_features(x), self.factor())

    def draws(self, weights: Tensor) -> FunctionDraws:
        """The functions of draws of the weights (..., K, S)."""
        is_series = self.has_grid and self.kernel.frequency_grid is not None and not self.noise.is_complex
        return (GridDraws if is_series else FeatureDraws)(self, weights)

    def function(self, weights: Tensor, x: Tensor) -> Tensor:
        """The function of weights (..., K, 1) at x (..., N, d): (..., N), or (..., N, T) for several tasks."""
        return self.functions(weights, x).squeeze(0)

    def functions(self, weights: Tensor, x: Tensor) -> Tensor:
        """The functions of weights (..., K, S) at x (..., N, d): (S, ..., N), or (S, ..., N, T) for several tasks.

        Weights of C classes make (S, ..., C, N).
        """
        checks.finite(checks.inputs(x).detach())
        by_class = x.unsqueeze(-3) if self.noise.is_batched and x.dim() > 2 else x
        values = self._values(by_class, self.factor(), weights, None)
        has_tasks = values.shape[-2] > 1 or self.noise.targets.has_tasks
        return (values if has_tasks else values.squeeze(-2)).movedim(-1, 0)

    def detached(self) -> Self:
        """The same regression, whose parameters are the leaves of graphs of their own."""
        twin = copy.copy(self)
        twin.kernel, twin.mean = detached(self.kernel), detached(self.mean)
        return twin

    def _values(
        self,
        x: Tensor,
        factor: OutputFactor,
        weights: Tensor,
        operator: Operator | None,
        features: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """The functions of weights (..., K, S) at x, (..., N, T, S), of the dtype of x or complex, by chunks."""
        features = features or self.kernel.scalar_features
        width = factor.num_outputs * weights.shape[-1] * weights.shape[:-2].numel()
        chunks = row_chunks(x.shape[-2], max(factor.num_scalar, width))
        parts = (self._chunk(x[..., rows, :], factor, weights, operator, features) for rows in chunks)
        return checks.no_overflow(joined(parts, x.shape[-2], dim=-3), x)

    def _chunk(
        self,
        x: Tensor,
        factor: OutputFactor,
        weights: Tensor,
        operator: Operator | None,
        features: Callable[[Tensor], Tensor],
    ) -> Tensor:
        values = factor.functions(features(x), weights)
        mean = self._mean_at(x, operator).unsqueeze(-1)
        if not self.noise.is_complex:
            values = values.real if values.is_complex() else values
            return (values + mean).to(x.dtype)
        dtype = torch.complex64 if x.dtype == torch.float32 else torch.complex128
        return (values.to(torch.complex128) + mean).to(dtype)

    def _mean_at(self, x: Tensor, operator: Operator | None) -> Tensor:
        """The mean function at x, (..., N, T), or what an operator makes of it."""
        if operator is not None:
            constants = constant_part(self.mean, self.noise.num_outputs, x.device)
            return operator.of_constant(constants, self.kernel.input_dim)
        return mean_values(self.mean, x)


def check_size(factor: Tensor | OutputFactor, num_groups: int) -> None:
    """Raise a ValueError where the matrices of the posterior would not fit in memory."""
    if isinstance(factor, OutputFactor) and (factor.covariance_root is None or num_groups > 1):
        what = f"a posterior of {factor.num_columns} weights"
        checks.fits_in_memory(24.0 * factor.num_columns**2, what, "use fewer features, or complete rows")


class FeaturesAt:
    """The scalar features of a kernel at inputs, for means and covariances: chunks of them are made when asked for.

    Those of all inputs at once are kept where no gradients run, so that they are made once. Gradients are those that
    were enabled at first.

    :param x: the inputs, (..., N, d), of which a copy is taken.
    """

    def __init__(self, kernel: SummedKernel, x: Tensor) -> None:
        self.kernel, self.x, self.tracks = kernel, x.clone(), torch.is_grad_enabled()
        self._whole: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """The features (..., n, D) of some inputs (..., n, d)."""
        tracks = self.tracks and torch.is_grad_enabled()
        if tracks or torch.compiler.is_compiling() or x.shape != self.x.shape or x.data_ptr() != self.x.data_ptr():
            with torch.set_grad_enabled(tracks):
                features: Tensor = self.kernel.scalar_features(x)
                return features
        if self._whole is None:
            with torch.no_grad():
                self._whole = self.kernel.scalar_features(x)
        return self._whole
