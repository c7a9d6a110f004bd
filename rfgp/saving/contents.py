"""What a file holds of an object: its attributes without caches and without training data."""

from __future__ import annotations

import functools
from typing import Any

import torch
from gpytorch.likelihoods import DirichletClassificationLikelihood, Likelihood
from gpytorch.likelihoods.noise_models import FixedGaussianNoise

from .._support.gpytorch_names import with_part, without_hooks
from .._support.states import HasRows
from ..likelihoods import MultitaskFixedNoiseGaussianLikelihood


def attributes(obj: Any, with_rows: bool) -> dict[str, Any]:
    """The attributes of an object that a file holds."""
    if isinstance(obj, HasRows):
        state = obj.saved_attributes(with_rows)
    else:
        state = dict(vars(obj)) if isinstance(obj, torch.nn.Module) else obj.__getstate__() or {}
    if isinstance(obj, torch.nn.Module):
        state = without_hooks(obj, state)
    if isinstance(obj, Likelihood):
        state = _without_rows(obj, state)
    kind = type(obj)
    return {
        name: value
        for name, value in state.items()
        if not isinstance(getattr(kind, name, None), functools.cached_property)
    }


def _without_rows(likelihood: Likelihood, state: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a likelihood without the noise and the labels of training rows."""
    noise = getattr(likelihood, "noise_covar", None)
    if isinstance(noise, FixedGaussianNoise):
        rows = -2 if isinstance(likelihood, MultitaskFixedNoiseGaussianLikelihood) else -1
        if noise.noise.dim() and noise.noise.shape[rows] > 1:
            empty = FixedGaussianNoise(noise.noise.narrow(rows, 0, 0).clone()).train(noise.training)
            state = with_part(state, "noise_covar", empty)
    if isinstance(likelihood, DirichletClassificationLikelihood):
        none = {name: getattr(likelihood, name)[..., :0].clone() for name in ("targets", "transformed_targets")}
        state = state | none
    return state
