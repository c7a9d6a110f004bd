"""How rows of several outputs are predicted from other rows, with outputs rotated so that they are independent."""

from __future__ import annotations

import math
from typing import Any

import torch
from gpytorch.kernels import MultitaskKernel
from torch import Tensor

from ..approximation.input_units import input_units
from ..inference.sums.mean_basis import mean_values
from ..linalg import cholesky
from .conditionals import Conditional
from .missing_cells import complete, pairwise_covariance
from .near_groups import near_groups
from .neighbor_scores import last_errors
from .output_covariances import noise_covariance, output_covariance, write_covariance, write_noise
from .output_factors import autocorrelation_factors, joint_factors
from .output_variances import OutputVariances, profiled_variances
from .starts import random_rows, set_within
from .stationary import covariance

_LEADING = 8
"""So many outputs teach the kernel; the variances of others follow from it."""
_MISSING_SIZE = 64
"""Cells of a row and its neighbors together, where some are missing."""
_FIRST_NOISE = 0.05
_FREEDOM = 4.0
_STUDENT = math.lgamma(0.5 * (_FREEDOM + 1.0)) - math.lgamma(0.5 * _FREEDOM) - 0.5 * math.log(math.pi * _FREEDOM)
_ROWS, _NEIGHBORS = 2000, 32
"""Rows, and neighbors of each, that teach the variances of other outputs."""


class RotatedOutputs(Conditional):
    r"""Several outputs with :math:`\Gamma = W \mathrm{diag}(s) W^\top` and noise :math:`W \mathrm{diag}(n) W^\top`.

    W has the autocorrelation factors of the targets, or those of the model. The largest factors teach the kernel, under
    Student's t, so that spikes of one do not. Missing cells of many outputs count as their means given the row.

    :param initialize: whether W, s and n come from the data.
    """

    def __init__(self, model: Any, kernel: MultitaskKernel, x: Tensor, y: Tensor, initialize: bool) -> None:
        self.model, self.tasks, self.kernel, self.x = model, kernel.task_covar_module, kernel.data_covar_module, x
        residual = y.double() - mean_values(model.mean_module, x).double()
        if initialize:
            self.factors = autocorrelation_factors(residual, self._groups(1))
            noise = torch.full_like(self.factors[0], _FIRST_NOISE)
        else:
            function, rest = output_covariance(self.tasks), noise_covariance(model.likelihood)
            self.factors, noise = joint_factors(function + rest, rest)
        self.is_masked = bool(residual.isnan().any()) and y.shape[-1] <= _LEADING
        if not self.is_masked:
            complete(residual, pairwise_covariance(residual))
            residual = torch.linalg.solve(self.factors, residual.mT).mT
        self.residual = residual
        sizes = (self.factors / self.factors.norm(dim=-1, keepdim=True)).norm(dim=0)
        self.leading = sizes.argsort(descending=True)[:_LEADING]
        noise = noise[self.leading]
        self.variances = OutputVariances(1.0 - noise, noise)
        self.num_factors = len(noise)
        if self.is_masked:
            self.most_neighbors = _MISSING_SIZE // y.shape[-1] - 1
        self.parts = {"covar_module.": self.kernel, "outputs.": self.variances}

    def _groups(self, num_neighbors: int) -> Tensor:
        """Some rows behind those near them."""
        points = self.x.double() / input_units(self.kernel, self.x)
        return near_groups(points, random_rows(len(points), _ROWS).to(points.device), num_neighbors)

    def log_densities(self, groups: Tensor) -> Tensor:
        matrix, residual = covariance(self.kernel, self.x[groups]), self.residual[groups]
        if self.is_masked:
            return self._observed_log_densities(matrix, residual)
        noise = torch.diag_embed(self.variances.noise.unsqueeze(-1).expand(-1, matrix.shape[-1]))
        every = matrix.unsqueeze(-3) * self.variances.scale[:, None, None] + noise
        error, variance = last_errors(every, residual[..., self.leading].mT)
        return (
            _STUDENT - 0.5 * variance.log() - 0.5 * (_FREEDOM + 1.0) * (error.square() / (_FREEDOM * variance)).log1p()
        ).sum(-1)

    def _observed_log_densities(self, matrix: Tensor, residual: Tensor) -> Tensor:
        """Those of the cells of the last row that are not NaN, given those of other rows (B, n, T)."""
        own = self.leading.argsort()
        tasks, noise = self._outputs(self.variances.scale[own]), self._outputs(self.variances.noise[own])
        size, num_outputs = matrix.shape[-1], len(tasks)
        same = torch.eye(size, dtype=matrix.dtype, device=matrix.device)
        full = torch.einsum("bij,st->bisjt", matrix, tasks) + torch.einsum("ij,st->isjt", same, noise)
        full = full.reshape(len(matrix), size * num_outputs, size * num_outputs)
        is_known = ~residual.isnan().flatten(-2)
        inside = is_known.unsqueeze(-1) & is_known.unsqueeze(-2)
        factor = cholesky(torch.where(inside, full, torch.diag_embed((~is_known).to(full))))
        white = torch.linalg.solve_triangular(factor, residual.nan_to_num().flatten(-2).unsqueeze(-1), upper=False)
        densities = -0.5 * (white.squeeze(-1).square() + math.log(2.0 * math.pi)) - factor.diagonal(0, -2, -1).log()
        return (densities * is_known)[..., -num_outputs:].sum(-1)

    @torch.no_grad()
    def profile(self, groups: Tensor) -> None:
        if self.is_masked:
            return
        matrix = covariance(self.kernel, self.x[groups])
        scale, noise = profiled_variances(matrix, self.residual[groups][..., self.leading])
        for name, value in (("scale", scale), ("noise", noise)):
            set_within(self.variances, name, value)

    @torch.no_grad()
    def write(self) -> None:
        """Give the model the covariances of outputs and of noise."""
        own = self.leading.argsort()
        scale, noise = self.variances.scale[own], self.variances.noise[own]
        if not self.is_masked:
            groups = self._groups(_NEIGHBORS)
            scale, noise = profiled_variances(covariance(self.kernel, self.x[groups]), self.residual[groups])
        write_covariance(self.tasks, self._outputs(scale))
        write_noise(self.model.likelihood, self._outputs(noise))

    def _outputs(self, variances: Tensor) -> Tensor:
        """The covariance of outputs (T, T) of which the factors have these variances."""
        return self.factors * variances @ self.factors.mT
