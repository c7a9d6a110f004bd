"""How rows of several outputs are predicted from other rows, with outputs rotated so that they are independent."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import MultitaskKernel
from torch import Tensor

from ..inference.sums.mean_basis import mean_values
from .conditionals import Conditional
from .missing_cells import complete, covariance_of_pairs
from .near_groups import NearRows
from .neighbor_scores import last_errors, student_log_density
from .output_covariances import noise_covariance, output_covariance, write_covariance, write_noise
from .output_factors import autocorrelation_factors, joint_factors
from .output_variances import OutputVariances, profiled_variances
from .starts import random_rows
from .stationary import covariance

MOST_LEADING = 8
"""So many outputs teach the kernel; the variances of others follow from it."""
_MISSING_SIZE = 64
"""Cells of a row and its neighbors together, where some are missing."""
_FIRST_NOISE = 0.05
_ROWS, _NEIGHBORS = 2000, 32
"""Rows, and neighbors of each, that teach the variances at the end."""
_FACTOR_ROWS = 10_000
"""Rows that teach the factors: as many as can be, so that rare spikes are seen."""


class RotatedOutputs(Conditional):
    r"""Several outputs with :math:`\Gamma = W \mathrm{diag}(s) W^\top` and noise :math:`W \mathrm{diag}(n) W^\top`.

    W has the autocorrelation factors of the targets, or those of the model. The largest factors teach the kernel, under
    Student's t. Missing cells count as their means given the row.

    :param initialize: whether W, s and n come from the data.
    """

    def __init__(self, model: Any, kernel: MultitaskKernel, x: Tensor, y: Tensor, initialize: bool) -> None:
        self.model, self.tasks, self.kernel, self.x = model, kernel.task_covar_module, kernel.data_covar_module, x
        residual = y.double() - mean_values(model.mean_module, x).detach().double()
        if initialize:
            self.factors = autocorrelation_factors(residual, self._groups(1, _FACTOR_ROWS))
            noise = torch.full_like(self.factors[0], _FIRST_NOISE)
        else:
            function, rest = output_covariance(self.tasks), noise_covariance(model.likelihood)
            self.factors, noise = joint_factors(function + rest, rest)
        complete(residual, covariance_of_pairs(residual))
        self.residual = torch.linalg.solve(self.factors, residual.mT).mT
        sizes = (self.factors / self.factors.norm(dim=-1, keepdim=True)).norm(dim=0)
        self.leading = sizes.argsort(descending=True)[:MOST_LEADING]
        noise = noise[self.leading]
        self.variances = OutputVariances(1.0 - noise, noise)
        self.num_factors = len(noise)
        self._log_volume = torch.linalg.slogdet(self.factors).logabsdet if len(noise) == len(sizes) else 0.0
        self.parts = {"covar_module.": self.kernel, "outputs.": self.variances}

    def _groups(self, num_neighbors: int, count: int = _ROWS) -> Tensor:
        """Some rows behind those near them."""
        rows = random_rows(len(self.x), count).to(self.x.device)
        return NearRows(self.x).groups(self.kernel, rows, num_neighbors)

    def log_densities(self, groups: Tensor) -> Tensor:
        matrix, residual = covariance(self.kernel, self.x[groups]), self.residual[groups][..., self.leading]
        densities = student_log_density(*last_errors(self.variances.covariance(matrix), residual.mT))
        return densities.sum(-1) - self._log_volume

    def profile(self, groups: Tensor) -> None:
        residual = self.residual[groups][..., self.leading]
        self.variances.set(*profiled_variances(covariance(self.kernel, self.x[groups]), residual))

    @torch.no_grad()
    def write(self) -> None:
        """Give the model the covariances of outputs and of noise, all of them learned again from normal densities."""
        groups = self._groups(_NEIGHBORS)
        scale, noise = profiled_variances(covariance(self.kernel, self.x[groups]), self.residual[groups])
        write_covariance(self.tasks, self.factors * scale @ self.factors.mT, self.factors * scale.sqrt())
        write_noise(self.model.likelihood, self.factors * noise @ self.factors.mT)
