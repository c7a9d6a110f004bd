"""What predictions lose on every test row, and what that makes of a model: scores with standard errors over rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Normal

from ..diagnostics import normal_interval

LEVEL = 0.95
"""The nominal coverage of intervals."""


@dataclass(frozen=True)
class Losses:
    """What predictions lose on every test row.

    :param error: squared errors of standardized targets, or whether the class is wrong, (M,) or (M, T).
    :param log_loss: negative log densities of standardized targets, or log probabilities of the class, (M,) or (M, T).
    :param trust: whether the 95 % interval has the target, or the probability of the predicted class less 1 where it is
        right, (M,) or (M, T).
    """

    error: Tensor
    log_loss: Tensor
    trust: Tensor

    def minus(self, other: Losses) -> dict[str, tuple[float, float]]:
        """Mean differences of error and log loss, and their standard errors over rows."""
        return {
            "error": mean_and_error(self.error - other.error),
            "mnll": mean_and_error(self.log_loss - other.log_loss),
        }


def regression_losses(predictive: Normal, y: Tensor) -> Losses:
    """The losses of predictions of standardized targets, (M,) or (M, T)."""
    lower, upper = normal_interval(predictive, LEVEL)
    inside = (lower <= y) & (y <= upper)
    return Losses((y - predictive.mean).square(), -predictive.log_prob(y), inside.double())


def classification_losses(probabilities: Tensor, labels: Tensor) -> Losses:
    """The losses of class probabilities (M, C), given labels (M,)."""
    confidence, predicted = probabilities.double().max(-1)
    is_right = (predicted == labels).double()
    of_label = probabilities.double().gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    smallest = torch.finfo(probabilities.dtype).tiny
    return Losses(1.0 - is_right, -of_label.clamp_min(smallest).log(), confidence - is_right)


def mean_and_error(values: Tensor) -> tuple[float, float]:
    """The mean of values (M,) or (M, T), and its standard error over rows."""
    rows = values.double().reshape(len(values), -1).mean(-1)
    error = float(rows.std()) / math.sqrt(len(rows)) if len(rows) > 1 else math.nan
    return float(rows.mean()), error
