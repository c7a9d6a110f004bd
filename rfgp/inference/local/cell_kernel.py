"""A kernel of several outputs as one of cells: of inputs and the coefficients of a combination of the outputs."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import torch
from linear_operator import to_dense
from torch import Tensor

if TYPE_CHECKING:
    from ...approximation.random_feature_kernel import RandomFeatureKernel


class CellKernel(torch.nn.Module):
    r"""The scalar kernel of points (x, c): :math:`k((x, c), (x', c')) = c^\top K(x, x') c'`, with its features.

    An output alone has one coefficient, which is one.

    :param kernel: a kernel of T outputs with features.
    """

    is_complex, has_output_factor = False, False

    def __init__(self, kernel: RandomFeatureKernel) -> None:
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

    def __init__(self, kernel: RandomFeatureKernel) -> None:
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
