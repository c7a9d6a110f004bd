"""The cells of a table of tasks as rows of one output, whose last inputs say which task it is."""

from __future__ import annotations

import torch
from gpytorch.means import Mean, MultitaskMean
from torch import Tensor

from ..local.cells import CellKernel, cells_of, parts_of
from .laplace import LatentFunctions
from .task_terms import TaskFunctions


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


class CellMean(Mean):
    """The mean function of tasks at cells (..., N, d + T)."""

    def __init__(self, mean: Mean, num_tasks: int) -> None:
        super().__init__()
        self.mean, self.num_tasks = mean, num_tasks

    def forward(self, x: Tensor) -> Tensor:
        inputs, tasks = parts_of(x, self.num_tasks)
        values: Tensor = self.mean(inputs)
        return (values * tasks).sum(-1) if isinstance(self.mean, MultitaskMean) else values
