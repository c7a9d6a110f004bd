"""Scores of predictive distributions of numbers: proper scores, coverage, sharpness and calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Independent, LowRankMultivariateNormal, MultivariateNormal, Normal

from .._support import checks
from ..likelihoods import ComplexNormal, unclamped

_NORMAL = (Normal, MultivariateNormal, LowRankMultivariateNormal, ComplexNormal)


def crps(predictive: Any, y: Tensor) -> Tensor:
    r"""The mean continuous ranked probability score of normal marginals, in the units of the target; low is good.

    .. math:: \frac1N \sum_i s_i \big[z_i (2 \Phi(z_i) - 1) + 2 \varphi(z_i) - \pi^{-1/2}\big], \qquad
        z_i = (y_i - m_i) / s_i

    :param predictive: a normal distribution with ``mean`` and ``variance`` of the shape of ``y``, with its noise.
    :param y: the targets; NaN where a target is missing.
    :raises ValueError: where shapes disagree, or a variance is not positive.

    Source: Gneiting and Raftery (2007), Eq. 21.

    >>> crps(torch.distributions.Normal(torch.zeros(2), torch.ones(2)), torch.zeros(2))
    tensor(0.2337, dtype=torch.float64)
    """
    mean, std, targets = observed(predictive, y)
    z = (targets - mean) / std
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2.0 * math.pi)
    return (std * (z * torch.erf(z / math.sqrt(2.0)) + 2.0 * density - 1.0 / math.sqrt(math.pi))).mean()


def interval_score(lower: Tensor, upper: Tensor, y: Tensor, level: float = 0.95) -> Tensor:
    r"""The mean interval score, in the units of the target: width, and a penalty for targets outside; low is good.

    .. math:: u - l + \frac{2}{1 - p} \big[(l - y)_+ + (y - u)_+\big]

    :param y: the targets, of the shape of the ends; NaN where a target is missing.
    :param level: the nominal coverage p.
    :raises ValueError: where shapes disagree, ends are not in order, or the level is no probability.

    Source: Gneiting and Raftery (2007), Eq. 43.

    >>> interval_score(torch.zeros(2), torch.ones(2), torch.tensor([0.5, 1.1]), level=0.8)
    tensor(1.5000, dtype=torch.float64)
    """
    low, high, targets = _intervals(lower, upper, y)
    outside = (low - targets).clamp_min(0.0) + (targets - high).clamp_min(0.0)
    return (high - low + 2.0 / (1.0 - checks.share("level", level)) * outside).mean()


def coverage(lower: Tensor, upper: Tensor, y: Tensor) -> Tensor:
    """The share of targets inside of their intervals.

    :param y: the targets, of the shape of the ends; NaN where a target is missing.
    :raises ValueError: where shapes disagree, or ends are not in order.

    >>> coverage(torch.zeros(2), torch.ones(2), torch.tensor([0.5, 1.1]))
    tensor(0.5000, dtype=torch.float64)
    """
    low, high, targets = _intervals(lower, upper, y)
    return ((low <= targets) & (targets <= high)).double().mean()


def sharpness(lower: Tensor, upper: Tensor) -> Tensor:
    """The mean width of intervals, in the units of the target: of two models with the right coverage, the lower wins.

    :raises ValueError: where shapes disagree, or ends are not in order.

    >>> sharpness(torch.zeros(2), torch.tensor([1.0, 3.0]))
    tensor(2., dtype=torch.float64)
    """
    low, high, _ = _intervals(lower, upper, lower)
    return (high - low).mean()


def normal_interval(predictive: Any, level: float = 0.95) -> tuple[Tensor, Tensor]:
    """The central intervals of normal marginals, lower and upper ends, in float64.

    :raises ValueError: for a level that is no probability, or a variance that is not positive.

    >>> normal_interval(torch.distributions.Normal(torch.zeros(1), torch.ones(1)), 0.95)[1]
    tensor([1.9600], dtype=torch.float64)
    """
    mean, std = normal_marginals(predictive)
    half = std * torch.special.ndtri(torch.tensor((1.0 + checks.share("level", level)) / 2.0, dtype=torch.float64))
    return mean - half, mean + half


def pit(predictive: Any, y: Tensor) -> Tensor:
    r"""The probability integral transform :math:`\Phi((y - m) / s)` of targets, uniform where a model is calibrated.

    :param predictive: a normal distribution with ``mean`` and ``variance`` of the shape of ``y``, with its noise.
    :param y: the targets; NaN where a target is missing.
    :returns: values from 0 to 1 of the targets that are there, in one dimension, float64.
    :raises ValueError: where shapes disagree, or a variance is not positive.

    >>> pit(torch.distributions.Normal(torch.zeros(2), torch.ones(2)), torch.tensor([0.0, 1.96]))
    tensor([0.5000, 0.9750], dtype=torch.float64)
    """
    mean, std, targets = observed(predictive, y)
    return torch.special.ndtr((targets - mean) / std)


def rmse(mean: Tensor, y: Tensor) -> Tensor:
    """The root mean squared error of predicted means (N,).

    :raises ValueError: where shapes disagree, or values are not finite.

    >>> rmse(torch.zeros(2), torch.tensor([3.0, -3.0]))
    tensor(3., dtype=torch.float64)
    """
    _check_shape(_numbers(mean, "mean"), _numbers(y, "y"))
    return (mean - y).abs().double().square().mean().sqrt()


def regression_mnll(predictive: Any, y: Tensor) -> Tensor:
    """The mean negative log density of targets (N,) under the marginals of a noisy normal predictive distribution.

    :raises ValueError: where shapes disagree, values are not finite, or variances are not positive.

    >>> regression_mnll(torch.distributions.Normal(torch.zeros(2), torch.ones(2)), torch.zeros(2))
    tensor(0.9189, dtype=torch.float64)
    """
    if _numbers(y, "y").is_complex():
        raise ValueError("expected real targets, got complex ones; use log_prob of the distribution")
    mean, std = normal_marginals(predictive)
    _check_shape(mean, y)
    return -torch.distributions.Normal(mean, std).log_prob(y.double()).mean()


@dataclass(frozen=True)
class CalibrationCurve:
    """What was predicted, and what was observed.

    :param predicted: nominal levels of intervals, or mean probabilities of a bin of classes, (K,).
    :param observed: the shares of targets inside, or of rows of the class, (K,).
    :param error: the standard errors of the shares, (K,).
    :param count: the numbers of targets, (K,).

    >>> normal = torch.distributions.Normal(torch.zeros(100), torch.ones(100))
    >>> calibration_curve(normal, torch.randn(100), [0.5, 0.9]).predicted
    tensor([0.5000, 0.9000], dtype=torch.float64)
    """

    predicted: Tensor
    observed: Tensor
    error: Tensor
    count: Tensor


def calibration_curve(predictive: Any, y: Tensor, levels: Sequence[float] | None = None) -> CalibrationCurve:
    """The coverage of central intervals of normal marginals by their nominal level.

    :param predictive: a normal distribution with ``mean`` and ``variance`` of the shape of ``y``, with its noise.
    :param y: the targets; NaN where a target is missing.
    :param levels: nominal levels; default: 0.05, 0.1, ..., 0.95.
    :raises ValueError: where shapes disagree, a variance is not positive, or a level is no probability.

    >>> y = torch.randn(4000, generator=torch.Generator().manual_seed(0))
    >>> curve = calibration_curve(torch.distributions.Normal(torch.zeros(4000), torch.ones(4000)), y, [0.5, 0.9])
    >>> bool(((curve.observed - curve.predicted).abs() < 4 * curve.error).all())
    True
    """
    inside = (2.0 * pit(predictive, y) - 1.0).abs()
    if levels is not None and (not isinstance(levels, Sequence) or not levels):
        raise ValueError(f"expected a list of levels, got {levels!r}; such as [0.5, 0.9]")
    nominal = [checks.share("level", level) for level in ([k / 20 for k in range(1, 20)] if levels is None else levels)]
    predicted = torch.tensor(nominal, dtype=torch.float64, device=inside.device)
    observed = (inside <= predicted.unsqueeze(-1)).double().mean(-1)
    return shares(predicted, observed, torch.full_like(predicted, len(inside)))


def energy_score(samples: Tensor, y: Tensor) -> Tensor:
    r"""The mean energy score of samples of several outputs, in the units of the targets; low is good.

    .. math:: \frac1N \sum_i \Big[\frac1S \sum_s |f_{si} - y_i| - \frac{1}{2 S (S - 1)} \sum_{s \ne t} |f_{si} -
        f_{ti}|\Big]

    :param samples: draws of the predictive distribution, with its noise, (S, N, T).
    :param y: the targets, (N, T).
    :raises ValueError: for fewer than two samples, values that are not finite, or other shapes.

    Source: Gneiting and Raftery (2007), Eq. 22.

    >>> energy_score(torch.tensor([[[1.0, 0.0]], [[-1.0, 0.0]]]), torch.zeros(1, 2))
    tensor(0., dtype=torch.float64)
    """
    checks.finite(checks.floating(samples, "samples"), "samples")
    checks.finite(checks.floating(y, "y"), "y")
    if samples.dim() != 3 or len(samples) < 2 or samples.shape[1:] != y.shape or not y.numel():
        raise ValueError(
            f"expected samples (S, N, T) with S >= 2 and y (N, T), got {tuple(samples.shape)} and {tuple(y.shape)}; "
            "draw more samples, or put outputs last"
        )
    draws = samples.double().transpose(0, 1)
    error = torch.linalg.vector_norm(draws - y.double().unsqueeze(1), dim=-1).mean()
    count = len(samples)
    rows = max(1, 2**22 // count**2)
    mode = "donot_use_mm_for_euclid_dist"  # products lose the digits of distances far from zero
    apart = torch.stack([torch.cdist(part, part, compute_mode=mode).sum() for part in draws.split(rows)]).sum()
    return error - apart / (2.0 * count * (count - 1) * len(y))


def shares(predicted: Tensor, observed: Tensor, count: Tensor) -> CalibrationCurve:
    """A curve with the standard errors of shares, as if the prediction were right."""
    error = (predicted * (1.0 - predicted) / count.clamp_min(1.0)).sqrt()
    return CalibrationCurve(predicted, observed, error, count)


def normal_marginals(predictive: Any) -> tuple[Tensor, Tensor]:
    """Means and standard deviations in float64, or raise where they are not those of a real normal distribution."""
    inner = predictive.base_dist if isinstance(predictive, Independent) else predictive
    checks.instance("predictive", inner, _NORMAL, "a normal distribution", "such as likelihood(posterior)")
    if predictive.mean.is_complex():
        raise ValueError("expected a real distribution, got a complex one; score real and imaginary parts")
    variance = unclamped(predictive).variance.double()
    if not bool((variance > 0).all()):
        raise ValueError(
            f"expected positive variances, got a smallest one of {float(variance.min()):g}; score noisy predictions, "
            "by likelihood(posterior)"
        )
    return predictive.mean.double(), variance.sqrt()


def observed(predictive: Any, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Means, standard deviations and targets where there are targets, in one dimension."""
    mean, std = normal_marginals(predictive)
    targets = _targets(y, mean)
    there = ~torch.isnan(targets)
    return mean[there], std[there], targets[there]


def _intervals(lower: Tensor, upper: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    low, high = (checks.floating(ends, name).double() for ends, name in ((lower, "lower"), (upper, "upper")))
    targets = _targets(y, low)
    if low.shape != high.shape or not bool((low <= high).all()):
        raise ValueError(
            f"expected lower ends {tuple(low.shape)} below upper ends of the same shape, got {tuple(high.shape)}, or "
            "some above; pass them in order"
        )
    there = ~torch.isnan(targets)
    return low[there], high[there], targets[there]


def _targets(y: Tensor, predicted: Tensor) -> Tensor:
    targets = checks.tensor(y, "y")
    if targets.is_complex() or targets.shape != predicted.shape:
        raise ValueError(
            f"expected real targets of shape {tuple(predicted.shape)}, as predictions have, got {tuple(targets.shape)} "
            f"of {targets.dtype}; reshape one of the two"
        )
    targets = targets.double()
    if bool(torch.isinf(targets).any()) or bool(torch.isnan(targets).all()):
        raise ValueError("expected finite targets, got infinite ones or none at all; NaN stands for a missing one")
    return targets


def _numbers(values: Tensor, name: str) -> Tensor:
    if checks.tensor(values, name).dtype == torch.bool or values.numel() == 0:
        raise ValueError(f"expected numbers for {name}, got {values.numel()} of {values.dtype}; pass predictions")
    return checks.finite(values, name)


def _check_shape(mean: Tensor, y: Tensor) -> None:
    if mean.shape != y.shape:
        raise ValueError(
            f"expected predictions of shape {tuple(y.shape)}, as y has, got {tuple(mean.shape)}; reshape one of the two"
        )
