"""How rows of several outputs are predicted from other rows, with outputs rotated so that they are independent."""

from __future__ import annotations

import math
from typing import Any

import gpytorch
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import MultitaskKernel
from torch import Tensor

from ..approximation.input_units import input_units
from ..inference.sums.mean_basis import mean_values
from ..linalg import cholesky
from .conditionals import Conditional
from .near_groups import near_groups
from .neighbor_scores import last_log_density
from .output_covariances import write_covariance, write_noise
from .starts import random_rows, set_within
from .stationary import covariance

_LEADING = 8
"""So many outputs teach the kernel; the variances of others follow from it."""
_MISSING_SIZE = 64
"""Cells of a row and its neighbors together, where some are missing."""
_IMPUTATION_RANK, _ROWS_AT_A_TIME = 16, 1024
_LEAST, _FIRST_NOISE = 1e-8, 0.05
_ROWS, _NEIGHBORS = 500, 64
_RATIOS = tuple(10.0 ** (0.5 * power) for power in range(-13, 4))


class OutputVariances(gpytorch.Module):
    """Scale and noise variance of each rotated output, (T,)."""

    def __init__(self, variances: Tensor) -> None:
        super().__init__()
        for name, value in (("scale", variances), ("noise", _FIRST_NOISE * variances)):
            self.register_parameter(f"raw_{name}", torch.nn.Parameter(torch.zeros_like(variances)))
            self.register_constraint(f"raw_{name}", GreaterThan(_LEAST * float(variances.max())))
            set_within(self, name, value)

    @property
    def scale(self) -> Tensor:
        """Variances of the functions."""
        value: Tensor = self.raw_scale_constraint.transform(self.raw_scale)
        return value

    @scale.setter
    def scale(self, value: Tensor) -> None:
        self.initialize(raw_scale=self.raw_scale_constraint.inverse_transform(value))

    @property
    def noise(self) -> Tensor:
        """Variances of the noise."""
        value: Tensor = self.raw_noise_constraint.transform(self.raw_noise)
        return value

    @noise.setter
    def noise(self, value: Tensor) -> None:
        self.initialize(raw_noise=self.raw_noise_constraint.inverse_transform(value))


class RotatedOutputs(Conditional):
    r"""Several outputs with :math:`\Gamma = U \mathrm{diag}(s) U^\top` and noise :math:`U \mathrm{diag}(n) U^\top`.

    U has the eigenvectors of the covariance of the targets, of which the leading ones teach the kernel. Missing cells
    of many outputs count as their means given the others of the row.
    """

    def __init__(self, model: Any, kernel: MultitaskKernel, x: Tensor, y: Tensor) -> None:
        self.model, self.tasks, self.kernel, self.x = model, kernel.task_covar_module, kernel.data_covar_module, x
        residual = y.double() - mean_values(model.mean_module, x).double()
        covariance_of_outputs = _pairwise_covariance(residual)
        variances, self.rotation = torch.linalg.eigh(covariance_of_outputs)
        self.is_masked = bool(residual.isnan().any()) and y.shape[-1] <= _LEADING
        if not self.is_masked:
            _complete(residual, covariance_of_outputs)
        self.residual = residual if self.is_masked else residual @ self.rotation
        self.leading = slice(max(0, y.shape[-1] - _LEADING), None)
        self.variances = OutputVariances(variances[self.leading])
        self.num_factors = min(y.shape[-1], _LEADING)
        if self.is_masked:
            self.most_neighbors = _MISSING_SIZE // y.shape[-1] - 1
        self.parts = {"covar_module.": self.kernel, "outputs.": self.variances}

    def log_densities(self, groups: Tensor) -> Tensor:
        matrix, residual = covariance(self.kernel, self.x[groups]), self.residual[groups]
        if self.is_masked:
            return self._observed_log_densities(matrix, residual)
        noise = torch.diag_embed(self.variances.noise.unsqueeze(-1).expand(-1, matrix.shape[-1]))
        every = matrix.unsqueeze(-3) * self.variances.scale[:, None, None] + noise
        return last_log_density(every, residual[..., self.leading].mT).sum(-1)

    def _observed_log_densities(self, matrix: Tensor, residual: Tensor) -> Tensor:
        """Those of the cells of the last row that are not NaN, given those of other rows (B, n, T)."""
        tasks, noise = (
            self.rotation * part @ self.rotation.mT for part in (self.variances.scale, self.variances.noise)
        )
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

    def _all_variances(self, groups: Tensor) -> tuple[Tensor, Tensor]:
        r"""Scale and noise of every rotated output, (T,): of the leading ones as they are.

        For a ratio q of noise and scale the scale is the mean of :math:`\epsilon^2 / v`, where v is the variance of the
        error :math:`\epsilon` for scale one; the best of some ratios is taken.
        """
        matrix = covariance(self.kernel, self.x[groups])
        near, last = self.residual[groups[:, :-1]], self.residual[groups[:, -1]]
        best = torch.full_like(last[0], -math.inf)
        scale, noise = torch.ones_like(best), torch.ones_like(best)
        for ratio in _RATIOS:
            inner = matrix[:, :-1, :-1].clone()
            inner.diagonal(dim1=-2, dim2=-1).add_(ratio)
            cross = matrix[:, :-1, -1:]
            weights = torch.cholesky_solve(cross, cholesky(inner))
            variance = matrix[:, -1, -1:] + ratio - (weights * cross).sum(-2)
            error = last - (weights.mT @ near).squeeze(-2)
            size = (error.square() / variance).mean(0).clamp_min(1e-300)
            density = -0.5 * (size.log() + variance.log().mean())
            is_better = density > best
            best = torch.where(is_better, density, best)
            scale, noise = torch.where(is_better, size, scale), torch.where(is_better, ratio * size, noise)
        scale[self.leading], noise[self.leading] = self.variances.scale, self.variances.noise
        return scale, noise

    @torch.no_grad()
    def write(self) -> None:
        """Give the model the covariances of outputs and of noise."""
        scale, noise = self.variances.scale, self.variances.noise
        if self.residual.shape[-1] > _LEADING:
            points = self.x.double() / input_units(self.kernel, self.x)
            scale, noise = self._all_variances(near_groups(points, random_rows(len(points), _ROWS), _NEIGHBORS))
        tasks, covariance_of_noise = (self.rotation * part @ self.rotation.mT for part in (scale, noise))
        write_covariance(self.tasks, tasks)
        write_noise(self.model.likelihood, covariance_of_noise)


def _pairwise_covariance(residual: Tensor) -> Tensor:
    """The covariance (T, T) of outputs from the rows that have both, made positive definite."""
    is_known = (~residual.isnan()).double()
    known = residual.nan_to_num()
    matrix = (known.mT @ known) / (is_known.mT @ is_known).clamp_min(1.0)
    values, vectors = torch.linalg.eigh(matrix)
    least = 1e-6 * values[-1].clamp_min(torch.finfo(values.dtype).tiny)
    return vectors * values.clamp_min(float(least)) @ vectors.mT


def _complete(residual: Tensor, covariance_of_outputs: Tensor) -> None:
    r"""Replace NaN by means given the other cells of the row, by the leading eigenvectors V of the covariance.

    .. math:: V (V^\top O V + \delta \Lambda^{-1})^{-1} V^\top O r
    """
    rows = residual.isnan().any(-1).nonzero().squeeze(-1)
    values, vectors = torch.linalg.eigh(covariance_of_outputs)
    rank = min(_IMPUTATION_RANK, len(values) - 1)
    leading, level = vectors[:, -rank:], values[:-rank].mean() / values[-rank:]
    products = (leading.unsqueeze(-1) * leading.unsqueeze(-2)).flatten(1)
    for chunk in rows.split(_ROWS_AT_A_TIME):
        is_missing, known = residual[chunk].isnan(), residual[chunk].nan_to_num()
        inner = ((~is_missing).double() @ products).unflatten(-1, (rank, rank)) + torch.diag(level)
        weights = torch.linalg.solve(inner, known @ leading)
        residual[chunk] = torch.where(is_missing, weights @ leading.mT, known)
