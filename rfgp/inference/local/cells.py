"""The cells of several outputs as rows of one output: inputs, and the coefficients of a combination of the outputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

import torch
from gpytorch.means import Mean
from linear_operator import to_dense
from torch import Tensor

from ..noise import NoiseModel
from ..sums.mean_basis import coefficients
from ..sums.rows import Rows
from .prediction import SystemConditioning
from .residual import ResidualProcess
from .rows import LocalRows
from .systems import CombinedSystems

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel


class CellKernel(torch.nn.Module):
    r"""The scalar kernel of points (x, c): :math:`k((x, c), (x', c')) = c^\top K(x, x') c'`, with its features.

    An output alone has one coefficient, which is one.

    :param kernel: a kernel of T outputs with features.
    """

    is_complex, has_output_factor = False, False

    def __init__(self, kernel: FeatureKernel) -> None:
        super().__init__()
        self.kernel = kernel

    @property
    def exact_kernel(self) -> CellCovariance:
        """The exact kernel of cells."""
        return CellCovariance(self.kernel)

    @property
    def num_scalar_features(self) -> int:
        """The number of columns of the features of all outputs."""
        count: int = self.kernel.outputs_factor().num_columns
        return count

    @property
    def total_outputscale(self) -> Tensor:
        """One: the features contain the scale of the outputs."""
        return next(self.parameters()).new_ones((), dtype=torch.float64)

    def output_factor(self, operator: Any = None) -> Tensor:
        """The root of the output scale, (1, 1)."""
        return self.total_outputscale.reshape(1, 1)

    def scalar_features(self, cells: Tensor) -> Tensor:
        """The features (..., n, K) of cells (..., n, d + T)."""
        factor = self.kernel.outputs_factor()
        x, combination = parts_of(cells, factor.num_outputs)
        scalar = self.kernel.scalar_features(x)
        if factor.covariance_root is not None:
            root = (combination.to(factor.covariance_root) @ factor.covariance_root).to(scalar.dtype)
            return (scalar.unsqueeze(-1) * root.unsqueeze(-2)).flatten(-2)
        of_all = factor.features(scalar).unflatten(-2, (-1, factor.num_outputs))
        return (combination.to(of_all).unsqueeze(-2) @ of_all).squeeze(-2)


class CellCovariance(torch.nn.Module):
    """The exact covariances of cells, dense."""

    def __init__(self, kernel: FeatureKernel) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, cells: Tensor, others: Tensor | None = None, diag: bool = False) -> Tensor:
        """The covariances (..., n, m) between cells (..., n, d + T) and others, or the variances (..., n)."""
        terms = self.kernel.summands()
        if len(terms) > 1:  # of which each may be a scalar kernel times a covariance of the outputs
            return reduce(torch.add, (CellCovariance(term)(cells, others, diag) for term in terms))
        num_outputs = self.kernel.outputs_factor().num_outputs
        (x, first), (y, second) = (parts_of(part, num_outputs) for part in (cells, cells if others is None else others))
        separated = self.kernel.separated()
        if separated is not None:
            exact, outputs = separated[0].exact_kernel, separated[1]
            values = exact(x, y, diag=True) if diag else to_dense(exact(x, y))
            half = first.to(outputs) @ outputs
            shares = (half * second.to(outputs)).sum(-1) if diag else half @ second.to(outputs).mT
            return values * shares.to(values.dtype)
        if diag:
            x, first, y, second = (part.unsqueeze(-2) for part in (x, first, y, second))
        every = to_dense(self.kernel.exact_kernel(x, y))
        blocks = every.unflatten(-1, (-1, num_outputs)).unflatten(-3, (-1, num_outputs))
        right = (blocks * second[..., None, None, :, :].to(blocks)).sum(-1)
        values = (right * first.unsqueeze(-1).to(blocks)).sum(-2)
        return values.flatten(-3) if diag else values


def parts_of(cells: Tensor, num_outputs: int) -> tuple[Tensor, Tensor]:
    """The inputs (..., d) and the coefficients (..., T) of cells (..., d + T)."""
    return cells[..., :-num_outputs], cells[..., -num_outputs:]


def cells_of(x: Tensor, num_outputs: int) -> Tensor:
    """The cells (..., N T, d + T) of all outputs at inputs (..., N, d), interleaved."""
    return combined_cells(x, torch.eye(num_outputs, dtype=x.dtype, device=x.device).expand(*x.shape[:-1], -1, -1))


def combined_cells(x: Tensor, combinations: Tensor) -> Tensor:
    """The cells (..., N T, d + T) of combinations (..., N, T, T) of the outputs at inputs (..., N, d)."""
    rows = x.unsqueeze(-2).expand(*x.shape[:-1], combinations.shape[-2], -1)
    return torch.cat([rows, combinations.to(x)], dim=-1).flatten(-3, -2)


class CellSystem(CombinedSystems):
    """The observed cells of several outputs as the rows of one output, by a :class:`CellKernel`.

    Where the noise of outputs is correlated, rows are combinations of the cells of an input with independent noise.
    Columns are the target, and the basis of the mean times the coefficients of the outputs.
    """

    kernel: CellKernel

    def __init__(self, kernel: FeatureKernel, mean: Mean, noise: NoiseModel) -> None:
        super().__init__(CellKernel(kernel), mean, noise)
        self.num_outputs = self.cells_of_point = noise.num_outputs

    def points(self, x: Tensor) -> Tensor:
        return cells_of(x, self.num_outputs)

    def outputs(self, functions: Tensor) -> Tensor:
        return functions.squeeze(-2).unflatten(-1, (-1, self.num_outputs))

    def output_variances(self, variances: Tensor) -> Tensor:
        return self.outputs(variances)

    def output_covariance(self, of_system: Callable[[int], Tensor]) -> Tensor:
        return of_system(0)

    def conditioning(
        self, rows: LocalRows, num_neighbors: int | None, dtype: torch.dtype = torch.float64
    ) -> SystemConditioning:
        separated, root = self.kernel.kernel.separated(), self.kernel.kernel.outputs_factor().covariance_root
        if separated is None or root is None:
            return SystemConditioning(self, rows, num_neighbors, dtype)
        return SeparableCells(self, rows, num_neighbors, dtype, CellResidual(*separated, dtype), root)

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
        if torch.equal(whole, torch.diag_embed(precisions)):
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


class CellResidual(ResidualProcess):
    r"""The process that the features of :math:`k \otimes \Gamma` leave over at cells; features are the scalar ones.

    .. math:: R((x, c), (x', c')) = (k(x, x') - \phi(x) \phi(x')^\top) \, c^\top \Gamma c'

    :param kernel: the scalar kernel.
    :param outputs: the covariance of the outputs, (T, T).
    """

    def __init__(self, kernel: FeatureKernel, outputs: Tensor, dtype: torch.dtype = torch.float64) -> None:
        super().__init__(kernel, dtype)
        self.outputs = outputs.to(dtype)

    def features(self, x: Tensor) -> Tensor:
        return super().features(self.parts(x)[0])

    def covariance(self, x: Tensor, features: Tensor) -> Tensor:
        inputs, outputs = self.parts(x)
        return super().covariance(inputs, features) * (outputs @ self.outputs @ outputs.mT)

    def cross_covariance(self, x: Tensor, features: Tensor, y: Tensor, other: Tensor) -> Tensor:
        (inputs, outputs), (others, of_others) = self.parts(x), self.parts(y)
        exact = super().cross_covariance(inputs, features, others, other)
        return exact * (outputs @ self.outputs @ of_others.mT)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The inputs and the coefficients of cells, the latter in the dtype of covariances."""
        inputs, outputs = parts_of(x, len(self.outputs))
        return inputs, outputs.to(self.dtype)


class SeparableCells(SystemConditioning):
    r"""The residual at cells given near ones; features of cells are made of scalar ones after the conditioning.

    .. math:: \phi_* \otimes A^\top c_* - \sum_j S_{*j} \, \phi_j \otimes A^\top c_j, \qquad \Gamma = A A^\top
    """

    residual: CellResidual

    def __init__(
        self,
        systems: CellSystem,
        rows: LocalRows,
        num_neighbors: int | None,
        dtype: torch.dtype,
        residual: CellResidual,
        root: Tensor,
    ) -> None:
        super().__init__(systems, rows, num_neighbors, dtype)
        self.residual, self.root = residual, (root / residual.root).to(dtype)

    def _left(self, x: Tensor, scalar: Tensor, weights: Tensor, given: Tensor, near: Tensor) -> Tensor:
        own, others = (self.residual.parts(cells)[1] @ self.root for cells in (x, self.rows.x[given]))
        known = weights.unsqueeze(-2) * others.mT.unsqueeze(-3).unsqueeze(-4)
        explained = (known.flatten(-4, -2) @ near).unflatten(-2, known.shape[-4:-1])
        return ((scalar.unsqueeze(-2) * own.unsqueeze(-1)).unsqueeze(-4) - explained).mT.flatten(-2)
