"""Scores of predictions against what was observed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..normal import unclamped


def error_rate(probabilities: Tensor, labels: Tensor) -> Tensor:
    """The share of rows whose most probable class is not their label.

    :param probabilities: (N, C).
    :param labels: (N,), integers.
    :returns: a float64 scalar.
    :raises ValueError: where shapes disagree.

    >>> error_rate(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 0]))
    tensor(0.5000, dtype=torch.float64)
    """
    _check_classes(probabilities, labels)
    return (probabilities.argmax(-1) != labels).double().mean()


def classification_mnll(probabilities: Tensor, labels: Tensor) -> Tensor:
    """The mean negative log likelihood of labels under class probabilities.

    :param probabilities: (N, C).
    :param labels: (N,), integers.
    :returns: a float64 scalar; probabilities of zero count as the smallest positive number.
    :raises ValueError: where shapes disagree.
    """
    _check_classes(probabilities, labels)
    chosen = probabilities.gather(-1, labels.long().unsqueeze(-1)).double()
    return -chosen.clamp_min(torch.finfo(probabilities.dtype).tiny).log().mean()


def rmse(mean: Tensor, y: Tensor) -> Tensor:
    """The root mean squared error of predicted means.

    :param mean: (N,).
    :param y: (N,).
    :returns: a float64 scalar.
    :raises ValueError: where shapes disagree.
    """
    if mean.shape != y.shape:
        raise ValueError(f"expected means of shape {tuple(y.shape)}, got {tuple(mean.shape)}")
    return (mean - y).double().square().mean().sqrt()


def regression_mnll(predictive: Any, y: Tensor) -> Tensor:
    """The mean negative log density of targets under the marginals of a noisy predictive distribution.

    :param predictive: a normal distribution with ``mean`` and ``variance`` of shape (N,).
    :param y: (N,).
    :returns: a float64 scalar.
    :raises ValueError: where shapes disagree.
    """
    if predictive.mean.shape != y.shape:
        raise ValueError(f"expected predictions of shape {tuple(y.shape)}, got {tuple(predictive.mean.shape)}")
    mean, std = predictive.mean.double(), unclamped(predictive).variance.double().sqrt()
    return -torch.distributions.Normal(mean, std).log_prob(y.double()).mean()


def _check_classes(probabilities: Tensor, labels: Tensor) -> None:
    if probabilities.dim() != 2 or labels.shape != probabilities.shape[:1]:
        raise ValueError(
            f"expected probabilities (N, C) and labels (N,), got {tuple(probabilities.shape)} and {tuple(labels.shape)}"
        )
