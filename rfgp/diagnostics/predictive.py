"""Scores of predictions against what was observed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _checks
from .scores import normal_marginals

_ROUNDING = 1e-5  # of probabilities in single precision


def error_rate(probabilities: Tensor, labels: Tensor) -> Tensor:
    """The share of rows whose most probable class is not their label.

    :param probabilities: (N, C), or other scores of the classes.
    :param labels: (N,), integers from 0 to C - 1.
    :returns: a float64 scalar.
    :raises ValueError: where shapes disagree, scores are not finite, or labels are out of range.

    >>> error_rate(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 0]))
    tensor(0.5000, dtype=torch.float64)
    """
    codes = _checked_labels(probabilities, labels)
    return (probabilities.argmax(-1) != codes).double().mean()


def classification_mnll(probabilities: Tensor, labels: Tensor) -> Tensor:
    """The mean negative log likelihood of labels under class probabilities.

    :param probabilities: (N, C), from 0 to 1.
    :param labels: (N,), integers from 0 to C - 1.
    :returns: a float64 scalar; probabilities of zero count as the smallest positive number.
    :raises ValueError: where shapes disagree, or values are out of range.

    >>> classification_mnll(torch.tensor([[0.5, 0.5], [0.5, 0.5]]), torch.tensor([0, 1]))
    tensor(0.6931, dtype=torch.float64)
    """
    codes = checked_probabilities(probabilities, labels)
    chosen = probabilities.gather(-1, codes.unsqueeze(-1)).double()
    return -chosen.clamp_min(torch.finfo(probabilities.dtype).tiny).log().mean()


def rmse(mean: Tensor, y: Tensor) -> Tensor:
    """The root mean squared error of predicted means.

    :param mean: (N,).
    :param y: (N,).
    :returns: a float64 scalar.
    :raises ValueError: where shapes disagree, or values are not finite.

    >>> rmse(torch.zeros(2), torch.tensor([3.0, -3.0]))
    tensor(3., dtype=torch.float64)
    """
    _check_shape(_numbers(mean, "mean"), _numbers(y, "y"))
    return (mean - y).abs().double().square().mean().sqrt()


def regression_mnll(predictive: Any, y: Tensor) -> Tensor:
    """The mean negative log density of targets under the marginals of a noisy predictive distribution.

    :param predictive: a normal distribution with ``mean`` and ``variance`` of shape (N,).
    :param y: (N,).
    :returns: a float64 scalar.
    :raises ValueError: where shapes disagree, values are not finite, or variances are not positive.

    >>> regression_mnll(torch.distributions.Normal(torch.zeros(2), torch.ones(2)), torch.zeros(2))
    tensor(0.9189, dtype=torch.float64)
    """
    if _numbers(y, "y").is_complex():
        raise ValueError("expected real targets, got complex ones; use log_prob of the distribution")
    mean, std = normal_marginals(predictive)
    _check_shape(mean, y)
    return -torch.distributions.Normal(mean, std).log_prob(y.double()).mean()


def checked_probabilities(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Labels as int64, or raise where they are none, or probabilities (N, C) are out of range."""
    codes = _checked_labels(probabilities, labels)
    check_range(probabilities)
    return codes


def check_range(probabilities: Tensor) -> None:
    """Raise where floating-point probabilities are not from 0 to 1."""
    _checks.finite(_checks.floating(probabilities, "probabilities"), "probabilities")
    if bool(((probabilities < 0) | (probabilities > 1 + _ROUNDING)).any()):
        raise ValueError(
            f"expected probabilities from 0 to 1, got {float(probabilities.min()):g} to {float(probabilities.max()):g}"
            "; use likelihood.class_probabilities"
        )


def _checked_labels(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Labels as int64, or raise where they or the scores (N, C) are not what they have to be."""
    if _checks.finite(_checks.floating(probabilities, "probabilities"), "probabilities").dim() != 2:
        raise ValueError(
            f"expected probabilities (N, C), a column per class, got {tuple(probabilities.shape)}; stack them"
        )
    return _checks.labels(labels, probabilities, probabilities.shape[-1], "labels")


def _numbers(values: Tensor, name: str) -> Tensor:
    if _checks.tensor(values, name).dtype == torch.bool or values.numel() == 0:
        raise ValueError(f"expected numbers for {name}, got {values.numel()} of {values.dtype}; pass predictions")
    return _checks.finite(values, name)


def _check_shape(mean: Tensor, y: Tensor) -> None:
    if mean.shape != y.shape:
        raise ValueError(
            f"expected predictions of shape {tuple(y.shape)}, as y has, got {tuple(mean.shape)}; reshape one of the two"
        )
