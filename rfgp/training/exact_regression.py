"""A model as regressions with its exact kernel."""

from __future__ import annotations

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
from ..inference.sums.mean_basis import mean_values, without_fixed
from ..likelihoods import MultitaskFixedNoiseGaussianLikelihood
from ..linalg.last_rows import StationaryRows
from ..models import WeightSpaceGP
from .composite_likelihood import Observations
from .objectives import ExactObjective, Objective, WeightSpaceObjective
from .prediction_errors import conditional_log_density
from .stationary import covariance, stationary_parts


class ExactRegression(Observations):
    """A model as exact regressions on its rows.

    :param targets: (N,), or (C, N) for classes, or (N, T) for several outputs, in float64.
    :param noise: fixed noise variances, of the shape of the targets; None where the noise is learned.
    :param weights: what divides the noise of the rows, (N,); None for ones.
    :param is_multitask: whether rows have several outputs.

    ``residuals`` are the targets less the part of the mean function that is not learned, ``mean`` is the other.
    """

    shape_evaluations = (40, 20)

    def __init__(
        self,
        objective: Objective,
        kernel: Kernel,
        targets: Tensor,
        noise: Tensor | None,
        weights: Tensor | None = None,
        is_multitask: bool = False,
    ) -> None:
        super().__init__(objective, kernel)
        self.targets, self.noise, self.weights, self.is_multitask = targets, noise, weights, is_multitask
        self.mean, self.residuals = without_fixed(self.model.mean_module, self.x, targets)

    @property
    def outputs(self) -> Tensor:
        columns = self.targets.unsqueeze(-1) if self.is_plain else self.targets
        return columns if self.is_plain or self.is_multitask else columns.mT

    @property
    def is_plain(self) -> bool:
        """Whether rows have one target each."""
        return self.targets.dim() == 1

    def log_densities(self, groups: Tensor, targets: int) -> Tensor:
        x, kernel = self.x[groups], self.kernel
        if self.is_multitask:
            num_outputs = self.targets.shape[-1]
            mean = mean_values(self.mean, x).expand(*groups.shape, num_outputs)
            residual = (self.residuals[groups] - mean).double().flatten(-2)
            matrix = covariance(kernel, x)
            if self.noise is not None:
                own = self.noise[groups] if self.weights is None else self.noise[groups] / self.weights[groups, None]
                return conditional_log_density(matrix, own.flatten(-2), residual, targets * num_outputs)
            prior = MultitaskMultivariateNormal(mean, to_linear_operator(matrix))
            noisy = self.model.likelihood(prior).covariance_matrix
            if self.weights is not None:
                of_rows = self.weights[groups].repeat_interleave(num_outputs, dim=-1).unsqueeze(-1)
                noisy = matrix + (noisy - matrix) / of_rows
            return conditional_log_density(noisy, residual.new_zeros(1), residual, targets * num_outputs)
        is_batched = bool(kernel.batch_shape)
        matrix = covariance(kernel, x.unsqueeze(-3) if is_batched else x)
        mean, variances = _mean(self.mean, x), self.noise_variances(groups)
        if self.is_plain:
            return conditional_log_density(matrix, variances, self.residuals[groups] - mean, targets)
        of_classes = self.residuals[:, groups].transpose(0, 1)
        every = (matrix if is_batched else matrix.unsqueeze(1)).expand(*of_classes.shape, of_classes.shape[-1])
        residual = of_classes - (mean if mean.dim() == of_classes.dim() else mean.unsqueeze(1))
        return conditional_log_density(every, variances, residual, targets).sum(-1)

    def stationary_rows(self, rows: Tensor) -> StationaryRows | None:
        if not self.is_plain:
            return None
        x = self.x.index_select(0, rows)
        parts = stationary_parts(self.kernel, x)
        if parts is None:
            return None
        residual = self.residuals[rows] - _mean(self.mean, x)
        noise = self.noise_variances(rows).expand(len(rows))
        columns = residual.unsqueeze(-1), noise.unsqueeze(-1)
        return StationaryRows(parts.points, *columns, parts.scale.unsqueeze(-1), parts.alpha, parts.profile)

    def noise_variances(self, rows: Tensor) -> Tensor:
        """The noise variances of rows (..., n): of a shape that expands to these, or (B, C, n) for classes."""
        likelihood = self.model.likelihood
        if self.noise is None:
            variances: Tensor = likelihood.noise.double().reshape(1)
        else:
            variances = self.noise[rows] if self.is_plain else self.noise[:, rows].transpose(0, 1)
            if likelihood.second_noise_covar is not None:
                second = likelihood.second_noise_covar.noise.double()
                variances = variances + second.reshape((-1,) if self.is_plain else (-1, 1))
        if self.weights is None:
            return variances
        return variances / (self.weights[rows] if self.is_plain else self.weights[rows].unsqueeze(-2))


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
        return ExactRegression(objective, kernel, targets.mT, variances, weights)
    if y.is_complex() or bool(torch.isnan(y).any()):
        raise _no_regression("real targets without NaN")
    is_field = isinstance(model, WeightSpaceGP) and model.has_grid and model.covar_module.has_output_factor
    if is_field and type(likelihood) is MultitaskFixedNoiseGaussianLikelihood and likelihood.second_noise_covar is None:
        known = likelihood.noise if noise is None else noise
        return ExactRegression(objective, kernel, y.double(), known.detach().double(), weights, is_multitask=True)
    if is_field or isinstance(kernel, MultitaskKernel):
        if type(likelihood) is not MultitaskGaussianLikelihood or y.dim() != 2:
            raise _no_regression("a MultitaskGaussianLikelihood for a MultitaskKernel")
        return ExactRegression(objective, kernel, y.double(), None, weights, is_multitask=True)
    if model.covar_module.has_output_factor if isinstance(model, WeightSpaceGP) else y.dim() > 1:
        raise _no_regression("a scalar kernel or a MultitaskKernel")
    if isinstance(model, WeightSpaceGP) and model.covar_module.is_complex:
        raise _no_regression("real features")
    if type(likelihood) is GaussianLikelihood:
        return ExactRegression(objective, kernel, y.double(), None, weights)
    if type(likelihood) is FixedNoiseGaussianLikelihood:  # others may do more than add to what is given
        given = likelihood.noise_covar.noise if noise is None else noise
        return ExactRegression(objective, kernel, y.double(), given.detach().double(), weights)
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


def _mean(mean: gpytorch.means.Mean, x: Tensor) -> Tensor:
    """The mean function at blocks (B, n, d): (B, n), or (B, C, n) where it is a batch of classes."""
    has_batch = bool(getattr(mean, "batch_shape", torch.Size()))
    values: Tensor = mean(x.unsqueeze(-3) if has_batch else x)
    return values.double()
