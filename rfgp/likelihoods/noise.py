"""The noise of Gaussian likelihoods as numbers, in float64."""

from __future__ import annotations

import copy
from typing import Any

import gpytorch
import torch
from linear_operator import to_linear_operator
from torch import Tensor

from .._support.gpytorch_names import noise_of_rows
from .multitask_fixed_noise import MultitaskFixedNoiseGaussianLikelihood


def has_fixed_noise(likelihood: Any) -> bool:
    """Whether a likelihood is given the noise of every row."""
    fixed = gpytorch.likelihoods.FixedNoiseGaussianLikelihood | MultitaskFixedNoiseGaussianLikelihood
    return isinstance(likelihood, fixed)


def noise_covariance(likelihood: Any, num_rows: int, outputs: int, noise: Tensor | None = None) -> Tensor:
    """The dense covariance (N T, N T) of the noise at rows, with variances (N, T) where they are fixed."""
    size = num_rows * outputs
    if not hasattr(likelihood, "num_tasks"):
        if noise is None:
            variances: Tensor = likelihood.noise.detach().double()
        else:
            given = noise.detach().double().flatten()
            variances = noise_of_rows(likelihood, given).detach() if has_fixed_noise(likelihood) else given
        return torch.diag(variances.expand(size))
    zeros = gpytorch.distributions.MultitaskMultivariateNormal(
        torch.zeros(num_rows, outputs, dtype=torch.float64), to_linear_operator(torch.zeros(size, size).double())
    )
    options = {} if noise is None else {"noise": noise.detach().double()}
    return copy.deepcopy(likelihood).double()(zeros, **options).covariance_matrix.detach()


def output_noise(likelihood: Any) -> Tensor:
    """The variances (T,) of the noise of the outputs at one row, or all (N,) that a single output has."""
    if hasattr(likelihood, "num_tasks"):
        return noise_covariance(likelihood, 1, likelihood.num_tasks).diagonal()
    variances: Tensor = likelihood.noise.detach().double()
    return variances
