"""A kernel of several outputs as one of cells: of inputs and the number of an output."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator import to_dense
from torch import Tensor


class CellKernel(torch.nn.Module):
    r"""The scalar kernel of points (x, t): :math:`k((x, t), (x', t')) = K(x, x')_{t t'}`, with its features.

    :param kernel: a kernel of T outputs with features.
    """

    is_complex, has_output_factor = False, False

    def __init__(self, kernel: Any) -> None:
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
        """The features (..., n, K) of cells (..., n, d + 1)."""
        x, task = cells[..., :-1], cells[..., -1].long()
        scalar, factor = self.kernel.scalar_features(x), self.kernel.outputs_factor()
        if factor.covariance_root is not None:
            root = factor.covariance_root[task].to(scalar.dtype)
            return (scalar.unsqueeze(-1) * root.unsqueeze(-2)).flatten(-2)
        of_all = factor.features(scalar).unflatten(-2, (-1, factor.num_outputs))
        return of_all.take_along_dim(task[..., None, None], dim=-2).squeeze(-2)


class CellCovariance(torch.nn.Module):
    """The exact covariances of cells, dense."""

    def __init__(self, kernel: Any) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, cells: Tensor, others: Tensor | None = None, diag: bool = False) -> Tensor:
        """The covariances (..., n, m) between cells (..., n, d + 1) and others, or the variances (..., n)."""
        others = cells if others is None else others
        (x, first), (y, second) = ((part[..., :-1], part[..., -1].long()) for part in (cells, others))
        separated = self.kernel.separated()
        exact = self.kernel.exact_kernel if separated is None else separated[0].exact_kernel
        if separated is not None:
            values = exact(x, y, diag=True) if diag else to_dense(exact(x, y))
            pairs = (first, second) if diag else (first.unsqueeze(-1), second.unsqueeze(-2))
            return values * separated[1][pairs].to(values.dtype)
        if diag:
            every = exact(x, y, diag=True)
            return every.unflatten(-1, (x.shape[-2], -1)).take_along_dim(first.unsqueeze(-1), dim=-1).squeeze(-1)
        dense = to_dense(exact(x, y))
        rows, columns = (_positions(task, dense.shape[axis]) for task, axis in ((first, -2), (second, -1)))
        return dense.take_along_dim(rows.unsqueeze(-1), dim=-2).take_along_dim(columns.unsqueeze(-2), dim=-1)


def _positions(task: Tensor, width: int) -> Tensor:
    """The positions (..., n) of tasks among interleaved rows of all."""
    count = task.shape[-1]
    return torch.arange(count, device=task.device) * (width // max(count, 1)) + task


def cells_of(x: Tensor, num_outputs: int) -> Tensor:
    """The cells (..., N T, d + 1) of all outputs at inputs (..., N, d), interleaved."""
    task = torch.arange(num_outputs, dtype=x.dtype, device=x.device).expand(*x.shape[:-1], -1).unsqueeze(-1)
    rows = x.unsqueeze(-2).expand(*x.shape[:-1], num_outputs, -1)
    return torch.cat([rows, task], dim=-1).flatten(-3, -2)
