"""Calibration of class probabilities on rows that a model has not seen: how firmly labels speak, and a temperature."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor

from ..likelihoods.dirichlet import ALPHA_GRID
from ..likelihoods.mean_softmax import mean_softmax
from ..training import timing
from ..training.timing import Deadline
from .arrays import Floats
from .comparison import LabeledRows, class_losses
from .latent import latent_moments

_LARGEST_POWER = 8.0
_SPREAD = 0.3
"""The standard deviation of the log of the power beforehand, which keeps it near one where rows are few."""
_SMALLEST = 1e-12


def log_probabilities(mean: Tensor, variance: Tensor) -> Floats:
    """The log probabilities (N, C) of classes from the moments of latent functions (C, N)."""
    logs: Floats = mean_softmax(mean.mT, variance.mT.clamp_min(0.0).sqrt()).clamp_min(_SMALLEST).log().numpy()
    return logs


def tempered(logs: Floats, power: float) -> Floats:
    """Log probabilities (N, C) of the powers of probabilities, normalized."""
    scaled = power * logs
    result: Floats = scaled - np.logaddexp.reduce(scaled, axis=-1, keepdims=True)
    return result


@torch.no_grad()
def choose_alpha(model: Any, held: LabeledRows, deadline: Deadline) -> Floats:
    """Set the concentration of a Dirichlet likelihood to the best for held-out rows: their log probabilities then.

    The present value comes first, and others while there is time; blocks keep the one that they were learned with.
    """
    losses: dict[float, float] = {}
    likelihood, predictions = model.likelihood, {}
    first, seconds = likelihood.alpha_epsilon, 0.0
    others = () if model.contains_noise else ALPHA_GRID
    for alpha in sorted({*others, first}, key=lambda value: abs(np.log(value / first))):
        if losses and not deadline.allows(seconds):
            break
        began = timing.clock()
        likelihood.set_alpha_epsilon(alpha)
        mean, variance = latent_moments(model, torch.from_numpy(held.x))
        predictions[alpha] = log_probabilities(mean.mT, variance.mT)
        losses[alpha] = float(class_losses(held, predictions[alpha]).mean())
        seconds = timing.clock() - began
    best = min(losses, key=losses.__getitem__)
    likelihood.set_alpha_epsilon(best)
    return predictions[best]


def choose_power(rows: LabeledRows, logs: Floats) -> float:
    """The power of probabilities that rows which have not been seen are most probable with."""

    def loss(log_power: float) -> float:
        total = class_losses(rows, tempered(logs, np.exp(log_power))).sum()
        return float(total + 0.5 * (log_power / _SPREAD) ** 2)

    limit = np.log(_LARGEST_POWER)
    return float(np.exp(scipy.optimize.minimize_scalar(loss, bounds=(-limit, limit), method="bounded").x))
