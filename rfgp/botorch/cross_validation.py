"""Predictions without their own observations, as BoTorch's cross-validation gives them."""

from __future__ import annotations

from typing import Any

from botorch.cross_validation import CVResults
from botorch.models.transforms.outcome import Standardize
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from ..inference import LeaveGroupOut, LeaveOneOut


def check_outcome_transform(outcome: Any) -> None:
    """Raise a ValueError for a transform of the observations that is not linear."""
    if outcome is not None and type(outcome) is not Standardize:
        raise ValueError(f"expected Standardize or no outcome transform, got {type(outcome).__name__}; leave it out")


def results(
    model: Any,
    left_out: LeaveOneOut | LeaveGroupOut,
    y: Tensor,
    noise: Tensor | None,
    outcome: Standardize | None,
    observation_noise: bool,
) -> CVResults:
    """The leave-out predictions of transformed observations y (N, m), in the units of the observations."""
    variance = left_out.variance if observation_noise else left_out.latent_variance
    mean, variance = (values.reshape(len(y), 1, -1) for values in (left_out.mean, variance))
    y, noise = y.unsqueeze(-2), None if noise is None else noise.unsqueeze(-2)
    if outcome is not None:
        mean, variance = outcome.means + outcome.stdvs * mean, outcome.stdvs.square() * variance
        y = outcome.means + outcome.stdvs * y
        noise = None if noise is None else outcome.stdvs.square() * noise
    normal = MultivariateNormal if mean.shape[-1] == 1 else MultitaskMultivariateNormal
    values = mean.squeeze(-1) if mean.shape[-1] == 1 else mean
    posterior = GPyTorchPosterior(normal(values, DiagLinearOperator(variance.flatten(1))))
    return CVResults(model, posterior, y, noise)
