"""Regression of several outputs or classes on landmark features, and on what they leave over near rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import gpytorch
import torch
from gpytorch.means import Mean, ZeroMean
from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator
from torch import Tensor

from ..._support import checks
from ..._support.gpytorch_names import keep_arguments
from ...functionals import Operator
from ...likelihoods import MultitaskMultivariateNormal, MultivariateNormal
from ..noise import NoiseModel
from ..noise.base import Targets
from ..noise.class_labels import ClassLabels
from ..noise.independent import IndependentNoise
from ..posterior.covariance import CholeskyRoot, Index
from ..posterior.draws import FunctionDraws
from ..posterior.normal_equations import Equations
from ..posterior.posterior import GaussianPosterior, WeightPosterior
from ..posterior.regression import Regression
from ..sums.mean_basis import mean_values
from ..sums.residual_pass import TrainingRows
from ..sums.rows import Rows
from ..sums.sufficient_statistics import SufficientStatistics
from .cells import CellSystem
from .class_systems import ClassSystems
from .prediction import SystemConditioning
from .regression import LocalRegression, WhitenedNoise
from .rows import LocalRows
from .systems import LocalSystems, OneOutput, OutputSystems

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel


class SystemRegression(Regression):
    r"""Several systems, each a :class:`LocalRegression` on the same rows, and the outputs or classes that they make.

    .. math:: f_t(x) = m_t(x) + \sum_s M_{ts} g_s(x)

    with independent functions g. What the functions are, and how outputs follow from them, the systems say.
    """

    kernel: FeatureKernel
    has_point_predictor: ClassVar[bool] = False

    def __init__(
        self, systems: LocalSystems, mean: Mean, noise: NoiseModel, rows: LocalRows, num_neighbors: int | None
    ) -> None:
        super().__init__(cast("FeatureKernel", systems.kernel), mean, noise)
        self.systems, self.local, self.num_neighbors = systems, rows, num_neighbors

    def detached(self) -> Self:
        twin = super().detached()
        twin.systems = self.systems.detached()
        return twin

    def equations(self, statistics: SufficientStatistics, tracks: bool = False) -> Equations:
        return self.systems.equations(statistics, self.factor())

    def system(self, number: int) -> LocalRegression:
        """One system as a regression of one output with the mean zero."""
        rows, systems = self.local, self.systems
        targets = systems.targets(rows.columns)[number]
        variances = systems.variances(rows.columns, rows.variances)[number]
        local = rows.of_one_output(targets.detach(), variances.detach())
        noise = WhitenedNoise(IndependentNoise(Targets(), _one))
        return LocalRegression(self.kernel, ZeroMean(), noise, local, self.num_neighbors)

    def log_marginal_likelihood(self, statistics: SufficientStatistics, data: TrainingRows | None = None) -> Tensor:
        terms, count = self.equations(statistics).evidence_terms(), float(len(self.local.x))
        constant = self.systems.num_systems * count * self.noise.constant
        total = terms.quadratic + terms.log_determinant + constant + self.systems.log_scale(count)
        evidence = self.local.log_faded(self.systems) - 0.5 * total
        if not torch.is_grad_enabled():
            return evidence
        return self.systems.with_rotations(evidence, self.local, functools.partial(self._solved, statistics))

    def _solved(self, statistics: SufficientStatistics) -> Tensor:
        r"""The rows :math:`(\Phi \Phi^\top + R + \Sigma)^{-1} z` of every system, (S, N), without gradients."""
        detached = type(statistics).from_state_dict(statistics.state_dict())
        mean = self.equations(detached).posterior().mean
        return torch.stack([self.system(number).solved(weights) for number, weights in enumerate(mean)])

    def distribution(
        self, x: Tensor, posterior: GaussianPosterior, operator: Operator | None = None
    ) -> MultivariateNormal:
        if operator is not None:
            raise ValueError("expected no operator for a kernel in blocks, got one; make the model without block_size")
        if x.dim() != 2:
            raise ValueError(f"expected inputs of shape (N, d) for several outputs or classes, got {tuple(x.shape)}")
        tracks, has_variance = torch.is_grad_enabled(), gpytorch.settings.skip_posterior_variances.off()
        with torch.set_grad_enabled(tracks and x.requires_grad):
            weights = cast(WeightPosterior, posterior)
            mean, variance = self.point_moments(x, weights, has_variance, self.conditioning())
            mean = checks.no_overflow(mean, x).to(x.dtype)
            dense = functools.partial(self._covariance, self.systems.points(x.detach().clone()), weights)
            if self.noise.is_batched:
                return MultivariateNormal(mean.mT, SystemCovariance(variance.mT.to(x.dtype), dense))
            return MultitaskMultivariateNormal(mean, SystemCovariance(variance.flatten().to(x.dtype), dense))

    def conditioning(self, dtype: torch.dtype = torch.float64) -> SystemConditioning:
        """How rows near a point tell of it, with covariances and products of a dtype."""
        return self.systems.conditioning(self.local, self.num_neighbors, dtype)

    def point_moments(
        self, x: Tensor, posterior: WeightPosterior, has_variance: bool, conditioning: SystemConditioning
    ) -> tuple[Tensor, Tensor]:
        """Means and variances (N, T), or (N, C), at points (N, d)."""
        functions, variance = conditioning.moments(self.systems.points(x), posterior, has_variance)
        return self.systems.outputs(functions) + self._mean_of_outputs(x), self.systems.output_variances(variance)

    def prior_variances(self, x: Tensor) -> Tensor:
        """The variances (N, T), or (N, C), of the prior at points (N, d)."""
        variance: Tensor = self.kernel.exact_kernel(self.systems.points(x), diag=True)
        return self.systems.output_variances(variance.expand(self.systems.num_systems, -1))

    def _mean_of_outputs(self, x: Tensor) -> Tensor:
        """The mean function at x (..., N, d), (..., N, T), or (..., N, C)."""
        if not self.noise.is_batched:
            return mean_values(self.mean, x)
        by_class = mean_values(self.mean, x.unsqueeze(-3) if x.dim() > 2 else x)
        return by_class.squeeze(-1).mT if by_class.dim() > 2 else by_class

    @torch.no_grad()
    def _covariance(self, points: Tensor, posterior: WeightPosterior) -> Tensor:
        """The covariance of all outputs at points of the systems, (N T, N T), or (C, N, N)."""

        def of_system(number: int) -> Tensor:
            joint: Any = self.system(number).distribution(points, posterior.of_batch(number))
            dense: Tensor = joint.lazy_covariance_matrix.to_dense()
            return dense.double()

        return self.systems.output_covariance(of_system)

    def draws(self, weights: Tensor) -> FunctionDraws:
        """The functions of draws of the weights (S, D, M), with draws of the residual."""
        parts = [self.system(number).draws(part) for number, part in enumerate(weights)]
        return SystemDraws(self, parts)


def _one() -> Tensor:
    return torch.ones(1, dtype=torch.float64)


class SystemCovariance(CholeskyRoot):
    """A covariance (..., N, N) with known variances, whose other entries are made on demand."""

    def __init__(self, variance: Tensor, dense: Callable[[], Tensor]) -> None:
        super().__init__(variance)
        keep_arguments(self, dense=dense)
        self.variance, self.dense = variance, dense
        self._entries: Tensor | None = None

    @property
    def dtype(self) -> torch.dtype:
        return self.variance.dtype

    def _diagonal(self) -> Tensor:
        return self.variance

    def to_dense(self) -> Tensor:
        if self._entries is None:
            self._entries = self.dense().to(self.dtype)
        return self._entries

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.to_dense() @ rhs

    def _size(self) -> torch.Size:
        return torch.Size((*self.variance.shape, self.variance.shape[-1]))

    def _transpose_nonbatch(self) -> SystemCovariance:
        return self

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        entries: Tensor = to_linear_operator(self.to_dense())._get_indices(row_index, col_index, *batch_indices)
        return entries

    def _getitem(self, row_index: Index, col_index: Index, *batch_indices: Index) -> LinearOperator:
        result: LinearOperator = to_linear_operator(self.to_dense())._getitem(row_index, col_index, *batch_indices)
        return result

    def _expand_batch(self, batch_shape: torch.Size) -> LinearOperator:
        return to_linear_operator(self.to_dense().expand(*batch_shape, *self.shape[-2:]))


class SystemDraws(FunctionDraws):
    """Functions drawn of several systems, as those of outputs (..., N, T) or of classes (..., C, N)."""

    def __init__(self, regression: SystemRegression, parts: Sequence[FunctionDraws]) -> None:
        self.regression, self.parts = regression, parts

    def __call__(self, x: Tensor) -> Tensor:
        systems = self.regression.systems
        points = systems.points(x)
        functions = torch.stack([part(points) for part in self.parts], dim=-2)
        with torch.no_grad():
            values = systems.outputs(functions) + self.regression._mean_of_outputs(x).to(x.dtype)
            return values.mT if self.regression.noise.is_batched else values

    def take(self, index: Tensor) -> FunctionDraws:
        return SystemDraws(self.regression, [part.take(index) for part in self.parts])

    def __getstate__(self) -> dict[str, Any]:
        return {"regression": self.regression.detached(), "parts": self.parts}


def systems_of(kernel: FeatureKernel, mean: Mean, noise: NoiseModel, has_cells: bool = False) -> LocalSystems:
    """The systems of one output, of classes, or of several outputs, at the present parameters.

    :param has_cells: whether every observed cell of several outputs is a row.
    """
    if isinstance(noise, ClassLabels):
        return ClassSystems(kernel, mean, noise)
    if not noise.targets.has_columns:
        return OneOutput(kernel, mean, noise)
    separated = None if has_cells else kernel.separated()
    if separated is None:
        return CellSystem(kernel, mean, noise)
    scalar, covariance = separated
    return OutputSystems(scalar, covariance, mean, noise)


def needs_cells(kernel: FeatureKernel, noise: NoiseModel, rows: Rows) -> bool:
    """Whether rows of several outputs are not complete, or their covariance is not one product."""
    if not noise.targets.has_columns or noise.is_batched:
        return False
    is_incomplete = rows.num_groups > 1 or (rows.weights is not None and rows.is_in_all_groups)
    return is_incomplete or not noise.has_one_covariance or kernel.separated() is None


def regression_of(
    kernel: FeatureKernel, mean: Mean, noise: NoiseModel, rows: LocalRows, num_neighbors: int | None
) -> LocalRegression | SystemRegression:
    """The regression on rows in blocks."""
    systems = systems_of(kernel, mean, noise, rows.has_cells)
    if isinstance(systems, OneOutput):
        return LocalRegression(kernel, mean, WhitenedNoise(noise), rows, num_neighbors)
    count = None if num_neighbors is None else num_neighbors * systems.cells_of_point
    return SystemRegression(systems, mean, noise, rows, count)
