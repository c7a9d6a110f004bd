"""A model as regressions with its exact kernel, and their likelihood on blocks of few rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gpytorch
import torch
from gpytorch.distributions import MultitaskMultivariateNormal
from gpytorch.kernels import Kernel, MultitaskKernel
from gpytorch.likelihoods import (
    DirichletClassificationLikelihood,
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    MultitaskGaussianLikelihood,
)
from linear_operator import to_linear_operator
from torch import Tensor

from .._support.gpytorch_names import class_regressions
from ..data.row_noise import RowNoise, noise_parts
from ..inference.sums.mean_basis import mean_values
from ..likelihoods import MultitaskFixedNoiseGaussianLikelihood
from ..models import WeightSpaceGP
from .chunked import chunked_sum
from .moments import DataMoments
from .objectives import ExactObjective, Objective, WeightSpaceObjective
from .stationary import GaussianLogDensity, covariance

_CHUNK = 2**18
"""Entries of the matrices that are held at a time: they stay in the cache of a processor."""
_TRIAL_ROWS, _TRIAL_SIZE = 2500, 500
_SHARE_OF_ERROR = 0.1


@dataclass(frozen=True)
class ExactRegression:
    """A model as exact regressions on its rows.

    :param x: inputs, (N, d).
    :param targets: (N,), or (C, N) for classes, or (N, T) for several outputs, in float64.
    :param noise: fixed noise variances, of the shape of the targets; None where the noise is learned.
    :param weights: what divides the noise of the rows, (N,); None for ones.
    :param is_multitask: whether rows have several outputs.
    """

    model: Any
    kernel: Kernel
    x: Tensor
    targets: Tensor
    noise: Tensor | None
    weights: Tensor | None = None
    is_multitask: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether rows have one target each."""
        return self.targets.dim() == 1

    def log_likelihood(self, rows: Tensor) -> Tensor:
        """The log likelihood of independent blocks of rows (B, n), summed."""
        x, kernel = self.x[rows], self.kernel
        if self.is_multitask:
            mean = mean_values(self.model.mean_module, x).expand(*rows.shape, self.targets.shape[-1])
            if self.noise is not None:
                residual = (self.targets[rows] - mean).flatten(-2)
                return _log_density(covariance(kernel, x), self._of_cells(rows), residual)
            prior = MultitaskMultivariateNormal(mean, to_linear_operator(covariance(kernel, x)))
            marginal = self.model.likelihood(prior)
            residual = (self.targets[rows] - marginal.mean).flatten(-2)
            matrix = marginal.covariance_matrix
            if self.weights is not None:
                of_rows = self.weights[rows].repeat_interleave(self.targets.shape[-1], dim=-1).unsqueeze(-1)
                matrix = prior.covariance_matrix + (matrix - prior.covariance_matrix) / of_rows
            return _log_density(matrix, residual.new_zeros(1), residual)
        is_batched = bool(kernel.batch_shape)
        matrix = covariance(kernel, x.unsqueeze(-3) if is_batched else x)
        mean = _mean(self.model.mean_module, x)
        if self.is_plain:
            return _log_density(matrix, self.noise_variances(rows), self.targets[rows] - mean)
        targets, variances = self.targets[:, rows].transpose(0, 1), self.noise_variances(rows)
        every = (matrix if is_batched else matrix.unsqueeze(1)).expand(*targets.shape, targets.shape[-1])
        residual = targets - (mean if mean.dim() == targets.dim() else mean.unsqueeze(1))
        return _log_density(every, variances, residual)

    def noise_variances(self, rows: Tensor) -> Tensor:
        """The noise variances of rows (..., n): of a shape that expands to these, or (B, C, n) for classes."""
        variances = self._unweighted(rows)
        if self.weights is None:
            return variances
        weights = self.weights[rows]
        return variances / (weights if self.is_plain else weights.unsqueeze(-2))

    def _of_cells(self, rows: Tensor) -> Tensor:
        """The known noise variances of the outputs of rows (B, n), (B, n T)."""
        variances = self.noise[rows]  # type: ignore[index]
        return (variances if self.weights is None else variances / self.weights[rows].unsqueeze(-1)).flatten(-2)

    def _unweighted(self, rows: Tensor) -> Tensor:
        likelihood = self.model.likelihood
        if self.noise is None:
            noise: Tensor = likelihood.noise.double()
            return noise.reshape(1)
        variances = self.noise[rows] if self.is_plain else self.noise[:, rows].transpose(0, 1)
        second = likelihood.second_noise_covar
        if second is None:
            return variances
        return variances + second.noise.double().reshape((-1,) if self.is_plain else (-1, 1))


def exact_regression(objective: Objective) -> ExactRegression:
    """A model and its data as exact regressions."""
    model: Any = objective.model
    likelihood, mean = model.likelihood, getattr(model, "mean_module", None)
    kernel, x = (objective.kernel_and_inputs() if objective.x.dim() == 2 else None) or (None, None)
    if kernel is None or x is not objective.x or mean is None:
        raise _no_regression("a model with a kernel of its inputs and a mean")
    y, noise = _targets(objective)
    noise, weights = noise_parts(noise)
    if isinstance(likelihood, DirichletClassificationLikelihood) and isinstance(model, WeightSpaceGP):
        variances, targets = class_regressions(likelihood, y, likelihood.alpha_epsilon, torch.float64)
        return ExactRegression(model, kernel, x, targets.mT, variances, weights)
    if y.is_complex() or bool(torch.isnan(y).any()):
        raise _no_regression("real targets without NaN")
    is_field = isinstance(model, WeightSpaceGP) and model.has_grid and model.covar_module.has_output_factor
    if is_field and type(likelihood) is MultitaskFixedNoiseGaussianLikelihood and likelihood.second_noise_covar is None:
        known = likelihood.noise if noise is None else noise
        return ExactRegression(model, kernel, x, y.double(), known.detach().double(), weights, is_multitask=True)
    if is_field or isinstance(kernel, MultitaskKernel):
        if type(likelihood) is not MultitaskGaussianLikelihood or y.dim() != 2:
            raise _no_regression("a MultitaskGaussianLikelihood for a MultitaskKernel")
        return ExactRegression(model, kernel, x, y.double(), None, weights, is_multitask=True)
    if model.covar_module.has_output_factor if isinstance(model, WeightSpaceGP) else y.dim() > 1:
        raise _no_regression("a scalar kernel or a MultitaskKernel")
    if isinstance(model, WeightSpaceGP) and model.covar_module.is_complex:
        raise _no_regression("real features")
    if type(likelihood) is GaussianLikelihood:
        return ExactRegression(model, kernel, x, y.double(), None, weights)
    if type(likelihood) is FixedNoiseGaussianLikelihood:  # others may do more than add to what is given
        given = likelihood.noise_covar.noise if noise is None else noise
        return ExactRegression(model, kernel, x, y.double(), given.detach().double(), weights)
    raise _no_regression("a Gaussian, fixed-noise or Dirichlet likelihood")


def _targets(objective: Objective) -> tuple[Tensor, RowNoise]:
    """The targets, and the noise that was given beside them."""
    if isinstance(objective, WeightSpaceObjective):
        return objective.y, objective.noise
    if isinstance(objective, ExactObjective) and objective.can_take_rows:
        return objective.targets, None
    raise _no_regression("an ExactGP with a Gaussian likelihood and plain data")


def _no_regression(wanted: str) -> ValueError:
    return ValueError(
        f"expected {wanted} for the likelihood of the exact kernel on some rows, got another model; use "
        'strategy="evidence", which takes every model'
    )


class BlockObjective(Objective):
    """The log likelihood of independent blocks of rows (B, n) under the exact kernel; one block is a subset."""

    def __init__(self, regression: ExactRegression, rows: Tensor, moments: DataMoments | None = None) -> None:
        self.model, self.x, self.regression = regression.model, regression.x, regression
        self.rows = rows.to(self.x.device)
        if moments is not None:
            self.moments = moments

    @property
    def outputs(self) -> Tensor:
        targets = self.regression.targets
        columns = targets.unsqueeze(-1) if targets.dim() == 1 else targets
        return columns if len(columns) == len(self.x) else columns.mT

    @property
    def num_rows(self) -> int:
        return self.rows.numel()

    @property
    def tolerance(self) -> float:
        """A tenth of the standard error of the gradient, where the rows are some of all."""
        error = self.num_rows**-0.5 if self.num_rows < len(self.x) or len(self.rows) > 1 else 0.0
        return max(super().tolerance, _SHARE_OF_ERROR * error)

    def first_rows(self, size: int) -> None:
        return None

    def some_rows(self) -> Tensor | None:
        count, size = self.rows.shape
        if count * size <= _TRIAL_ROWS and size <= 2 * _TRIAL_SIZE:
            return None
        return self.rows[: max(1, _TRIAL_ROWS // size), :_TRIAL_SIZE]

    def evidence(self, rows: Tensor | None = None) -> Tensor:
        """The log likelihood, whose gradient is found chunk by chunk of the blocks."""
        wanted = self.rows if rows is None else rows
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        return chunked_sum(self.regression.log_likelihood, wanted, max(1, _CHUNK // wanted.shape[-1] ** 2), parameters)

    def finish(self) -> Tensor:
        return self.evidence()

    def kernel_and_inputs(self) -> tuple[Kernel, Tensor]:
        return self.regression.kernel, self.x


def _log_density(matrix: Tensor, variances: Tensor, residual: Tensor) -> Tensor:
    value: Tensor = GaussianLogDensity.apply(matrix, variances, residual.double())
    return value


def _mean(mean: gpytorch.means.Mean, x: Tensor) -> Tensor:
    """The mean function at blocks (B, n, d): (B, n), or (B, C, n) where it is a batch of classes."""
    has_batch = bool(getattr(mean, "batch_shape", torch.Size()))
    values: Tensor = mean(x.unsqueeze(-3) if has_batch else x)
    return values.double()
