"""Regression of several outputs or classes on landmark features, and on what they leave over near rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import gpytorch
import torch
from gpytorch.means import Mean, ZeroMean
from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator
from torch import Tensor

from ..._support import checks
from ..._support.gpytorch_names import keep_arguments
from ...functionals import Operator
from ...likelihoods import MultivariateNormal
from ..noise import NoiseModel
from ..noise.independent import IndependentNoise
from ..noise.targets import Targets
from ..posterior.covariance import CholeskyRoot
from ..posterior.draws import FunctionDraws
from ..posterior.normal_equations import Equations
from ..posterior.posterior import GaussianPosterior, WeightPosterior
from ..posterior.regression import Regression
from ..sums.mean_basis import mean_values
from ..sums.residual_pass import TrainingRows
from ..sums.sufficient_statistics import SufficientStatistics
from .noise import WhitenedNoise
from .regression import LocalRegression
from .rows import LocalRows
from .system_prediction import SystemConditioning
from .systems import LocalSystems

Covariance = Callable[[int], Tensor]
"""The covariance (N, N) of the function of a system at some points."""


class SystemRegression(Regression):
    r"""Several systems, each a :class:`LocalRegression` on the same rows, and the outputs or classes that they make.

    .. math:: f_t(x) = m_t(x) + \sum_s M_{ts} g_s(x)

    with independent functions g; classes are systems, with M = I, and outputs are mixed by :class:`OutputSystems`.
    """

    has_point_predictor: ClassVar[bool] = False

    def __init__(
        self, systems: LocalSystems, mean: Mean, noise: NoiseModel, rows: LocalRows, num_neighbors: int | None
    ) -> None:
        super().__init__(systems.kernel, mean, noise)
        self.systems, self.local, self.num_neighbors = systems, rows, num_neighbors

    def detached(self) -> Self:
        twin = super().detached()
        twin.systems = self.systems.detached()
        return twin

    def _cells(self, x: Tensor) -> Tensor:
        """The inputs of the systems at inputs (N, d)."""
        return x

    @property
    def mixing(self) -> Tensor | None:
        """The matrix M (T, S) of outputs; None for classes."""
        return None

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
        return -0.5 * total + self.local.log_faded(self.systems)

    def distribution(
        self, x: Tensor, posterior: GaussianPosterior, operator: Operator | None = None
    ) -> MultivariateNormal:
        if operator is not None:
            raise ValueError("expected no operator for a kernel in blocks, got one; make the model without block_size")
        if x.dim() != 2:
            raise ValueError(f"expected inputs of shape (N, d) for several outputs or classes, got {tuple(x.shape)}")
        with torch.set_grad_enabled(torch.is_grad_enabled() and x.requires_grad):
            return self._joint(x, posterior)

    def _joint(self, x: Tensor, posterior: Any) -> MultivariateNormal:
        conditioning = self.conditioning()
        has_variance = gpytorch.settings.skip_posterior_variances.off()
        functions, variance = conditioning.moments(self._cells(x), posterior, has_variance)
        covariance = functools.partial(self._covariance, self._cells(x.detach().clone()), posterior)
        return self._distribution(x, functions, variance, covariance)

    def conditioning(self, dtype: torch.dtype = torch.float64) -> SystemConditioning:
        """How rows near a point tell of it, with covariances and products of a dtype."""
        return SystemConditioning(self.systems, self.local, self.num_neighbors, dtype)

    def point_moments(
        self, x: Tensor, posterior: WeightPosterior, has_variance: bool, conditioning: SystemConditioning
    ) -> tuple[Tensor, Tensor]:
        """Means and variances (N, C) at points (N, d)."""
        functions, variance = conditioning.moments(x, posterior, has_variance)
        return (functions + mean_values(self.mean, x).squeeze(-1)).mT, variance.mT

    def prior_variances(self, x: Tensor) -> Tensor:
        """The variances (N, T) of the prior of outputs at points (N, d), or those of every class, (N, 1)."""
        scale: Tensor = self.kernel.exact_kernel(x, diag=True).unsqueeze(-1)
        return scale if self.mixing is None else scale * self.mixing.square().sum(-1).to(scale)

    def _distribution(
        self, x: Tensor, functions: Tensor, variance: Tensor, covariance: Covariance
    ) -> MultivariateNormal:
        """That of the classes, from means and variances (C, N), and the covariance (N, N) of a class on demand."""
        mean = checks.no_overflow(functions + mean_values(self.mean, x).squeeze(-1), x)

        def dense() -> Tensor:
            return torch.stack([covariance(number) for number in range(len(functions))])

        return MultivariateNormal(mean.to(x.dtype), SystemCovariance(variance.to(x.dtype), dense))

    @torch.no_grad()
    def _covariance(self, x: Tensor, posterior: WeightPosterior, number: int) -> Tensor:
        """The covariance (N, N) of the function of a system."""
        joint: Any = self.system(number).distribution(x, posterior.of_batch(number))
        dense: Tensor = joint.lazy_covariance_matrix.to_dense()
        return dense.double()

    def draws(self, weights: Tensor) -> FunctionDraws:
        """The functions of draws of the weights (S, D, M), with draws of the residual."""
        parts = [self.system(number).draws(part) for number, part in enumerate(weights)]
        return SystemDraws(parts, self.mixing, self.mean)


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

    def _getitem(self, row_index: Any, col_index: Any, *batch_indices: Any) -> LinearOperator:
        result: LinearOperator = to_linear_operator(self.to_dense())._getitem(row_index, col_index, *batch_indices)
        return result

    def _expand_batch(self, batch_shape: torch.Size) -> LinearOperator:
        return to_linear_operator(self.to_dense().expand(*batch_shape, *self.shape[-2:]))


class SystemDraws(FunctionDraws):
    """Functions drawn of several systems, as those of outputs (..., T) or of classes (..., C, N)."""

    def __init__(self, parts: Sequence[FunctionDraws], mixing: Tensor | None, mean: Mean) -> None:
        self.parts, self.mixing, self.mean = parts, mixing, mean

    def __call__(self, x: Tensor) -> Tensor:
        functions = torch.stack([part(x) for part in self.parts], dim=-1)
        with torch.no_grad():
            if self.mixing is not None:
                return functions @ self.mixing.mT.to(x.dtype) + mean_values(self.mean, x).to(x.dtype)
            of_class = mean_values(self.mean, x.unsqueeze(-3) if x.dim() > 2 else x).squeeze(-1)
            return functions.movedim(-1, -2) + of_class.to(x.dtype)

    def take(self, index: Tensor) -> FunctionDraws:
        return SystemDraws([part.take(index) for part in self.parts], self.mixing, self.mean)
