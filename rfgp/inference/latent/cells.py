"""The cells of a table of tasks as rows of one output, whose last input is the number of the task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from gpytorch.means import Mean, MultitaskMean
from linear_operator import to_dense
from torch import Tensor

from .laplace import LatentFunctions
from .task_terms import TaskFunctions


def cells_of(x: Tensor, num_tasks: int) -> Tensor:
    """Inputs (N, d) beside the number of every task, (N T, d + 1)."""
    tasks = torch.arange(num_tasks, dtype=x.dtype, device=x.device).repeat(len(x))
    return torch.cat([x.repeat_interleave(num_tasks, 0), tasks.unsqueeze(-1)], dim=-1)


def observed_cells(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of one latent function as they are, else the observed cells of tables y (N, T) of tasks."""
    if y.dim() == 1:
        return x, y.double()
    is_there = ~torch.isnan(y.flatten())
    return cells_of(x, y.shape[-1])[is_there], y.flatten()[is_there].double()


def functions_of_cells(functions: LatentFunctions) -> LatentFunctions:
    """The function of (input, task) for functions of tasks; that of a scalar kernel as it is."""
    latent = functions.likelihood
    if not isinstance(latent, TaskFunctions):
        return functions
    kernel = CellKernel(functions.kernel)
    return LatentFunctions(kernel, CellMean(functions.mean, latent.num_functions), latent.cell, functions.dtype)


class CellKernel:
    r"""A separable kernel of tasks as a scalar one of cells, :math:`k((x, t), (y, u)) = k(x, y) \Gamma_{tu}`."""

    is_complex, has_output_factor = False, False

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    @property
    def total_outputscale(self) -> Tensor:
        """One: the features contain all scales."""
        return self._root.new_ones(())

    @property
    def num_scalar_features(self) -> int:
        """The number of features of the scalar kernel times the rank of the root of the covariance of tasks."""
        return int(self.kernel.num_scalar_features) * int(self._root.shape[-1])

    @property
    def _root(self) -> Tensor:
        root: Tensor = self.kernel.output_factor().covariance_root
        return root.double()

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """Those of the kernel."""
        parameters: Iterator[torch.nn.Parameter] = self.kernel.parameters()
        return parameters

    def output_factor(self, operator: None = None) -> Tensor:
        """The same as the root of one output."""
        return self.total_outputscale.reshape(1, 1)

    def scalar_features(self, x: Tensor) -> Tensor:
        """The features of cells (..., N, d + 1), in float64."""
        scalar = self.kernel.scalar_features(x[..., :-1]).double()
        return (scalar.unsqueeze(-1) * self._root[x[..., -1].long()].unsqueeze(-2)).flatten(-2)

    def exact_kernel(self, x: Tensor, y: Tensor | None = None, diag: bool = False) -> Tensor:
        """The exact covariance of cells (..., N, d + 1), (..., N, M), or its diagonal, (..., N)."""
        scalar, covariance = self.kernel.separated()
        y = x if y is None else y
        first, second = x[..., -1].long(), y[..., -1].long()
        if diag:
            values: Tensor = scalar.exact_kernel(x[..., :-1], y[..., :-1], diag=True)
            return values.double() * covariance[first, second]
        matrix = to_dense(scalar.exact_kernel(x[..., :-1], y[..., :-1])).double()
        return matrix * covariance[first.unsqueeze(-1), second.unsqueeze(-2)]


class CellMean(Mean):
    """The mean function of tasks at cells (..., N, d + 1)."""

    def __init__(self, mean: Mean, num_tasks: int) -> None:
        super().__init__()
        self.mean, self.num_tasks = mean, num_tasks

    def forward(self, x: Tensor) -> Tensor:
        values: Tensor = self.mean(x[..., :-1])
        if not isinstance(self.mean, MultitaskMean):
            return values
        return values.gather(-1, x[..., -1:].long()).squeeze(-1)
