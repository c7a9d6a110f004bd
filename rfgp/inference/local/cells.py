"""Outputs that are missing, not separable, or of known noise as rows in blocks: every observed cell is a row."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.means import Mean
from torch import Tensor

from ...likelihoods import MultitaskMultivariateNormal, MultivariateNormal
from ..noise import NoiseModel
from ..noise.correlated import CorrelatedNoise
from ..posterior.draws import FunctionDraws
from ..posterior.posterior import WeightPosterior
from ..sums.mean_basis import coefficients, mean_values
from ..sums.rows import Rows
from .cell_kernel import CellKernel, cells_of, combined_cells
from .rows import LocalRows
from .separable_cells import SeparableCells
from .system_prediction import SystemConditioning
from .system_regression import Covariance, SystemCovariance, SystemRegression
from .systems import CombinedSystems


class CellSystem(CombinedSystems):
    """The observed cells of several outputs as the rows of one output, by a :class:`CellKernel`.

    Where the noise of outputs is correlated, rows are combinations of the cells of an input with independent noise.
    Columns are the target, and the basis of the mean times the coefficients of the outputs.
    """

    kernel: CellKernel

    def __init__(self, kernel: Any, mean: Mean, noise: NoiseModel) -> None:
        super().__init__(CellKernel(kernel))
        self.mean, self.noise, self.num_outputs = mean, noise, noise.num_outputs
        self.cells_of_point = self.num_outputs

    def rows(self, x: Tensor, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        targets, basis = rows.targets.double().tensor_split([self.num_outputs], dim=-1)
        combinations, precisions = self.independent(rows)
        by_output = (combinations.unsqueeze(-1) * basis[:, None, None, :]).flatten(-2)
        columns = torch.cat([combinations @ targets.unsqueeze(-1), by_output], dim=-1).flatten(0, 1)
        is_observed = (precisions > 0).flatten()
        parts = combined_cells(x, combinations), columns, precisions.flatten()
        cells, columns, observed = (part[is_observed] for part in parts)
        return cells, columns, 1.0 / observed

    def independent(self, rows: Rows) -> tuple[Tensor, Tensor]:
        r"""Combinations C (N, T, T) of the outputs of rows whose noise is independent, and their precisions p (N, T).

        .. math:: \Sigma^{-1} = C^\top \mathrm{diag}(p) \, C

        with triangles C of unit diagonal; missing outputs are in no combination, and have the precision zero.
        """
        whole = self.noise.row_precisions(rows)
        precisions = whole.diagonal(dim1=-2, dim2=-1)
        if not isinstance(self.noise, CorrelatedNoise):
            return torch.eye(self.num_outputs).to(whole).expand_as(whole), precisions
        missing = precisions == 0
        root = torch.linalg.cholesky(whole + torch.diag_embed(missing.to(whole)))
        scales = root.diagonal(dim1=-2, dim2=-1)
        return (root / scales.unsqueeze(-2)).mT, scales.square().masked_fill(missing, 0.0)

    def input_scales(self, scales: Tensor) -> Tensor:
        return torch.cat([scales, scales.new_zeros(self.num_outputs, *scales.shape[1:])])

    def combinations(self) -> Tensor:
        mean = coefficients(self.mean, self.num_outputs, self.residual.root.device)
        return torch.cat([mean.new_ones(1), -mean.mT.flatten()]).unsqueeze(0)

    def variances(self, columns: Tensor, variances: Tensor) -> Tensor:
        return variances.unsqueeze(-2)


class CellRegression(SystemRegression):
    """Outputs whose observed cells are the rows of one system.

    Neighbors are T times ``num_neighbors`` cells, which are those of more rows where some are missing.
    """

    systems: CellSystem

    def __init__(
        self, systems: CellSystem, mean: Mean, noise: NoiseModel, rows: LocalRows, num_neighbors: int | None
    ) -> None:
        count = None if num_neighbors is None else num_neighbors * systems.num_outputs
        super().__init__(systems, mean, noise, rows, count)

    def _cells(self, x: Tensor) -> Tensor:
        return cells_of(x, self.systems.num_outputs)

    def conditioning(self, dtype: torch.dtype = torch.float64) -> SystemConditioning:
        is_separable = self.systems.kernel.kernel.separated() is not None
        kind = SeparableCells if is_separable else SystemConditioning
        return kind(self.systems, self.local, self.num_neighbors, dtype)

    def point_moments(
        self, x: Tensor, posterior: WeightPosterior, has_variance: bool, conditioning: SystemConditioning
    ) -> tuple[Tensor, Tensor]:
        functions, variance = conditioning.moments(self._cells(x), posterior, has_variance)
        return self._by_output(functions) + mean_values(self.mean, x), self._by_output(variance)

    def prior_variances(self, x: Tensor) -> Tensor:
        return self._by_output(self.kernel.exact_kernel(self._cells(x), diag=True))

    def _by_output(self, values: Tensor) -> Tensor:
        """Values (1, N T) as (N, T)."""
        return values.reshape(-1, self.systems.num_outputs)

    def _distribution(
        self, x: Tensor, functions: Tensor, variance: Tensor, covariance: Covariance
    ) -> MultivariateNormal:
        mean = self._by_output(functions) + mean_values(self.mean, x)
        joint = SystemCovariance(variance[0].to(x.dtype), lambda: covariance(0))
        return MultitaskMultivariateNormal(mean.to(x.dtype), joint)

    def draws(self, weights: Tensor) -> FunctionDraws:
        return CellDraws(self.system(0).draws(weights[0]), self.systems.num_outputs, self.mean)


class CellDraws(FunctionDraws):
    """Functions drawn at cells as functions of several outputs, (S, ..., N, T)."""

    def __init__(self, draws: FunctionDraws, num_outputs: int, mean: Mean) -> None:
        self.draws, self.num_outputs, self.mean = draws, num_outputs, mean

    def __call__(self, x: Tensor) -> Tensor:
        values = self.draws(cells_of(x, self.num_outputs)).unflatten(-1, (-1, self.num_outputs))
        with torch.no_grad():
            return values + mean_values(self.mean, x).to(values)

    def take(self, index: Tensor) -> FunctionDraws:
        return CellDraws(self.draws.take(index), self.num_outputs, self.mean)
