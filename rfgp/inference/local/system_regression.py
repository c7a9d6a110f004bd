"""Regression of several outputs or classes on landmark features, and on what they leave over near rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

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
from .output_systems import OutputSystems
from .regression import LocalRegression
from .rows import LocalRows
from .system_prediction import SystemConditioning
from .systems import LocalSystems


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

    @property
    def mixing(self) -> Tensor | None:
        """The matrix M (T, S) of outputs; None for classes."""
        return self.systems.mixing if isinstance(self.systems, OutputSystems) else None

    def equations(self, statistics: SufficientStatistics, tracks: bool = False) -> Equations:
        return self.systems.equations(statistics, self.factor())

    def system(self, number: int) -> LocalRegression:
        """One system as a regression of one output with the mean zero."""
        rows, systems = self.local, self.systems
        targets = systems.combinations()[number] @ rows.columns.mT
        variances = systems.variances(rows.columns, rows.variances)[number]
        local = rows.of_one_output(targets.detach(), variances.detach())
        noise = WhitenedNoise(IndependentNoise(Targets(), _one))
        return LocalRegression(self.kernel, ZeroMean(), noise, local, self.num_neighbors)

    def log_marginal_likelihood(self, statistics: SufficientStatistics, data: TrainingRows | None = None) -> Tensor:
        terms, count = self.equations(statistics).evidence_terms(), float(len(self.local.x))
        constant = self.systems.num_systems * count * self.noise.constant
        evidence = -0.5 * (terms.quadratic + terms.log_determinant + constant + self.systems.log_scale(count))
        if isinstance(self.systems, OutputSystems) and torch.is_grad_enabled():
            rotations = self.systems.rotations()
            if rotations.requires_grad:
                evidence = evidence + (self._rotation_slopes(statistics) * rotations).triu(1).sum()
        return evidence

    @torch.no_grad()
    def _rotation_slopes(self, statistics: SufficientStatistics) -> Tensor:
        r"""The derivatives of the evidence in the signal between rotated outputs, (S, S).

        .. math:: \alpha_t^\top K \alpha_u, \qquad \alpha_t = (\gamma_t K + V)^{-1} z_t, \qquad
            K \alpha_u = (z_u - V \alpha_u) / \gamma_u

        with the covariance K of features and residual, and the variances V of rows whose noise is one.
        """
        detached = type(statistics).from_state_dict(statistics.state_dict())
        posterior = self.equations(detached).posterior()
        conditioned = [self.system(number).solved(posterior.mean[number]) for number in range(len(posterior.mean))]
        scales = self.systems.scales  # type: ignore[attr-defined]
        alpha = torch.stack(conditioned) / scales.sqrt().unsqueeze(-1)
        targets = self.systems.targets(self.local.columns) * scales.sqrt().unsqueeze(-1)
        known = (targets - self.local.variances * alpha) / scales.unsqueeze(-1)
        return alpha @ known.mT

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
        conditioning = SystemConditioning(self.systems, self.local, self.num_neighbors)
        has_variance = gpytorch.settings.skip_posterior_variances.off()
        functions, variance = conditioning.moments(x, posterior, has_variance)
        mixing, inputs = self.mixing, x.detach().clone()
        if mixing is None:
            mean = functions + mean_values(self.mean, x).squeeze(-1)

            def dense() -> Tensor:
                return torch.stack([self._covariance(inputs, posterior, s) for s in range(len(functions))])

            covariance = SystemCovariance(variance.to(x.dtype), dense)
            return MultivariateNormal(checks.no_overflow(mean, x).to(x.dtype), covariance)
        mean = functions.mT @ mixing.mT + mean_values(self.mean, x)
        variance = (variance.mT @ mixing.square().mT).flatten()

        def joint() -> Tensor:
            outer = [column.unsqueeze(-1) * column for column in mixing.mT]
            return sum(torch.kron(self._covariance(inputs, posterior, s), m) for s, m in enumerate(outer))  # type: ignore[return-value]

        covariance = SystemCovariance(variance.to(x.dtype), joint)
        return MultitaskMultivariateNormal(checks.no_overflow(mean, x).to(x.dtype), covariance)

    @torch.no_grad()
    def _covariance(self, x: Tensor, posterior: WeightPosterior, number: int) -> Tensor:
        """The covariance (N, N) of the function of a system."""
        joint = self.system(number).distribution(x, posterior.of_batch(number))
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

    def _getitem(self, row_index: Any, col_index: Any, *batch_indices: Any) -> LinearOperator:
        result: LinearOperator = to_linear_operator(self.to_dense())._getitem(row_index, col_index, *batch_indices)
        return result

    def _expand_batch(self, batch_shape: torch.Size) -> LinearOperator:
        return to_linear_operator(self.to_dense().expand(*batch_shape, *self.shape[-2:]))


class SystemDraws(FunctionDraws):
    """Functions drawn of several systems, as those of outputs (..., T) or of classes (..., C, N)."""

    def __init__(self, parts: list[FunctionDraws], mixing: Tensor | None, mean: Mean) -> None:
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
