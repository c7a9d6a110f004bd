"""Scores of class probabilities: error rate, log likelihood, Brier score, and how far probabilities are from shares."""

from __future__ import annotations

import torch
from torch import Tensor

from .._support import checks
from .scores import CalibrationCurve, shares


def brier_score(probabilities: Tensor, labels: Tensor) -> Tensor:
    r"""The mean squared distance of class probabilities from what happened, :math:`\sum_c (p_c - [y = c])^2`.

    :param probabilities: (N, C), from 0 to 1.
    :param labels: (N,), integers from 0 to C - 1.
    :returns: from 0 to 2; low is good.
    :raises ValueError: where shapes disagree, or values are out of range.

    Source: Brier (1950).

    >>> brier_score(torch.tensor([[0.5, 0.5], [0.0, 1.0]]), torch.tensor([0, 1]))
    tensor(0.2500, dtype=torch.float64)
    """
    codes = checked_probabilities(probabilities, labels)
    happened = torch.nn.functional.one_hot(codes, probabilities.shape[-1])
    return (probabilities.double() - happened).square().sum(-1).mean()


def reliability_curve(probabilities: Tensor, labels: Tensor, num_bins: int = 10) -> CalibrationCurve:
    """How often the most probable class is right, by its probability, in bins of equal numbers of rows.

    :param probabilities: (N, C), from 0 to 1.
    :param labels: (N,), integers from 0 to C - 1.
    :param num_bins: the number of bins K, at most N.
    :returns: mean probabilities of the bins, shares of right rows, standard errors and counts, (K,) each.
    :raises ValueError: where shapes disagree, or values are out of range.

    >>> probabilities = torch.tensor([[0.6, 0.4]] * 5 + [[0.1, 0.9]] * 5)
    >>> reliability_curve(probabilities, torch.tensor([0, 0, 0, 1, 1, 1, 1, 1, 1, 1]), num_bins=2).observed
    tensor([0.6000, 1.0000], dtype=torch.float64)
    """
    codes = checked_probabilities(probabilities, labels)
    bins = checks.positive_integer("num_bins", num_bins, largest=len(codes))
    confidence, chosen = probabilities.double().max(-1)
    _, levels, sizes = confidence.unique(return_inverse=True, return_counts=True)
    right = confidence.new_zeros(len(sizes)).index_add(0, levels, (chosen == codes).double()).div(sizes)[levels]
    parts = confidence.argsort().tensor_split(bins)
    predicted, observed = (torch.stack([values[rows].mean() for rows in parts]) for values in (confidence, right))
    count = predicted.new_tensor([float(len(rows)) for rows in parts])
    return shares(predicted.clamp_max(1.0), observed, count)


def expected_calibration_error(probabilities: Tensor, labels: Tensor, num_bins: int = 10) -> Tensor:
    r"""The mean distance of probability and share over the bins of :func:`reliability_curve`.

    .. math:: \sum_k \frac{N_k}{N} |\bar p_k - \bar a_k|

    :param probabilities: (N, C), from 0 to 1.
    :param labels: (N,), integers from 0 to C - 1.
    :param num_bins: the number of bins K, at most N.
    :raises ValueError: where shapes disagree, or values are out of range.

    Source: Naeini et al. (2015), with bins of equal counts.

    >>> expected_calibration_error(torch.tensor([[0.9, 0.1]] * 10), torch.tensor([0] * 8 + [1] * 2), num_bins=1)
    tensor(0.1000, dtype=torch.float64)
    """
    curve = reliability_curve(probabilities, labels, num_bins)
    return (curve.count * (curve.predicted - curve.observed).abs()).sum() / curve.count.sum()


_ROUNDING = 1e-5  # of probabilities in single precision


def error_rate(probabilities: Tensor, labels: Tensor) -> Tensor:
    """The share of rows whose most probable class is not their label.

    :param probabilities: (N, C), or other scores of the classes.
    :param labels: (N,), integers from 0 to C - 1.
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
    :returns: a scalar; probabilities of zero count as the smallest positive number.
    :raises ValueError: where shapes disagree, or values are out of range.

    >>> classification_mnll(torch.tensor([[0.5, 0.5], [0.5, 0.5]]), torch.tensor([0, 1]))
    tensor(0.6931, dtype=torch.float64)
    """
    codes = checked_probabilities(probabilities, labels)
    chosen = probabilities.gather(-1, codes.unsqueeze(-1)).double()
    return -chosen.clamp_min(torch.finfo(probabilities.dtype).tiny).log().mean()


def checked_probabilities(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Labels as int64, or raise where they are none, or probabilities (N, C) are out of range."""
    codes = _checked_labels(probabilities, labels)
    check_range(probabilities)
    return codes


def check_range(probabilities: Tensor) -> None:
    """Raise where floating-point probabilities are not from 0 to 1."""
    checks.finite(checks.floating(probabilities, "probabilities"), "probabilities")
    if bool(((probabilities < 0) | (probabilities > 1 + _ROUNDING)).any()):
        raise ValueError(
            f"expected probabilities from 0 to 1, got {float(probabilities.min()):g} to {float(probabilities.max()):g}"
            "; use likelihood.class_probabilities"
        )


def _checked_labels(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Labels as int64, or raise where they or the scores (N, C) are not what they have to be."""
    if checks.finite(checks.floating(probabilities, "probabilities"), "probabilities").dim() != 2:
        raise ValueError(
            f"expected probabilities (N, C), a column per class, got {tuple(probabilities.shape)}; stack them"
        )
    return checks.labels(labels, probabilities, probabilities.shape[-1], "labels")
