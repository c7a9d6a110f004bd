"""How rows of few outputs are predicted from other rows where cells are missing."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import MultitaskKernel
from torch import Tensor

from ..inference.sums.mean_basis import mean_values
from .conditionals import Conditional
from .learned_covariances import MOST_CELLS, learned_covariances
from .missing_cells import pairwise_covariance, positive_definite
from .near_groups import NearRows
from .neighbor_scores import last_errors, student_log_density
from .output_covariances import noise_covariance, output_covariance, write_covariance, write_noise
from .output_variances import OutputVariances, profiled_variances
from .starts import random_rows
from .stationary import covariance

_FIRST_NOISE = 0.1
_ROWS, _NEIGHBORS = 300, 32
"""Rows that teach the covariance of outputs at the end, and neighbors of each that start with the variances."""


class MaskedOutputs(Conditional):
    """Several outputs, each predicted from the known cells of its own; the kernel is the same.

    Their covariance is learned at the end. The noise of outputs counts as independent.

    :param initialize: whether variances come from the data, not from the model.
    """

    def __init__(self, model: Any, kernel: MultitaskKernel, x: Tensor, y: Tensor, initialize: bool) -> None:
        self.model, self.tasks, self.kernel, self.x = model, kernel.task_covar_module, kernel.data_covar_module, x
        residual = y.double() - mean_values(model.mean_module, x).detach().double()
        variances = residual.square().nanmean(0).nan_to_num()
        self.units = torch.where(variances > 0, variances, 1.0).sqrt()
        self.residual = residual / self.units
        scale, noise = torch.ones_like(self.units), torch.full_like(self.units, _FIRST_NOISE)
        if not initialize:
            squares = self.units.square()
            scale = output_covariance(self.tasks).diagonal() / squares
            noise = noise_covariance(model.likelihood).diagonal() / squares
        self.variances = OutputVariances(scale, noise)
        self.num_factors = y.shape[-1]
        self.parts = {"covar_module.": self.kernel, "outputs.": self.variances}

    def log_densities(self, groups: Tensor) -> Tensor:
        residual = self.residual[groups].mT
        is_known = ~residual.isnan()
        inside = is_known.unsqueeze(-1) & is_known.unsqueeze(-2)
        matrix = self.variances.covariance(covariance(self.kernel, self.x[groups]))
        identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
        errors = last_errors(torch.where(inside, matrix, identity), residual.nan_to_num())
        return ((student_log_density(*errors) - self.units.log()) * is_known[..., -1]).sum(-1)

    def profile(self, groups: Tensor) -> None:
        matrix, residual = covariance(self.kernel, self.x[groups]), self.residual[groups]
        scale, noise = self.variances.scale.detach().clone(), self.variances.noise.detach().clone()
        for output, column in enumerate(residual.unbind(-1)):
            rows = ~column[:, -1].isnan()
            if rows.any():
                known = (~column[rows].isnan()).to(matrix)
                inside = known.unsqueeze(-1) * known.unsqueeze(-2)
                values = column[rows].nan_to_num().unsqueeze(-1)
                scale[output], noise[output] = profiled_variances(matrix[rows] * inside, values)
        self.variances.set(scale, noise)

    @torch.no_grad()
    def write(self) -> None:
        """Give the model the covariances of outputs and of noise, whose variances are learned from normal densities."""
        near = NearRows(self.x)
        rows = random_rows(len(self.x), _ROWS).to(self.x.device)
        self.profile(near.groups(self.kernel, rows, _NEIGHBORS))
        scale, noise = self.variances.scale, self.variances.noise
        function = pairwise_covariance(self.residual)
        function.diagonal().mul_(scale / (scale + noise))
        root = (scale / function.diagonal()).sqrt()
        function = positive_definite(function * root.unsqueeze(-1) * root)
        groups = near.groups(self.kernel, rows, MOST_CELLS // len(self.units) - 1)
        cells = covariance(self.kernel, self.x[groups])
        function, noise = learned_covariances(cells, self.residual[groups], function, noise)
        write_covariance(self.tasks, function * self.units.unsqueeze(-1) * self.units)
        write_noise(self.model.likelihood, torch.diag(noise * self.units.square()))
