"""The moments of targets, which are the units of scales and noises; there are units where targets are constant too."""

from __future__ import annotations

from typing import NamedTuple

import torch
from gpytorch.means import LinearMean, Mean, MultitaskMean
from torch import Tensor

from ..inference.sums.mean_basis import without_fixed

_LEAST_NOISE = 1e-13
_ROUNDING = 1e3 * torch.finfo(torch.float64).eps
"""Relative errors of differences from a mean function, at most."""


class TargetMoments(NamedTuple):
    """Moments of the columns of targets, all (T,) in float64.

    :param means: the real part of the mean.
    :param variances: above zero; a column of zeros has the mean variance of the others, or one.
    :param function_variances: the variance that the function has to explain.
    :param least_noise: that of rounding, and what a regression can be computed with.
    """

    means: Tensor
    variances: Tensor
    function_variances: Tensor
    least_noise: Tensor


def target_moments(y: Tensor, mean: Mean | None, x: Tensor) -> TargetMoments:
    """Moments of targets (N, T) with NaN for missing values, less the part of the mean function that is not learned.

    Without a mean function it counts as learned.
    """
    if mean is not None:
        mean, y = without_fixed(mean, x, y)
    values = y.detach().to(torch.complex128 if y.is_complex() else torch.float64)
    means, spreads, squares = (torch.stack(part) for part in zip(*map(_of_column, values.unbind(-1)), strict=True))
    rounding = max(torch.finfo(y.dtype).eps, _ROUNDING) ** 2 * squares
    variances = torch.maximum(spreads, rounding)
    known = variances[variances > 0]
    variances = torch.where(variances > 0, variances, known.mean() if len(known) else 1.0)
    explained = variances + _offsets(means, mean, x).square()
    return TargetMoments(means.real, variances, explained, torch.maximum(rounding, _LEAST_NOISE * explained))


def _of_column(column: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance, and mean square; zeros where nothing is known."""
    known = column[~torch.isnan(column)]
    if not len(known):
        return column.new_zeros(()), column.real.new_zeros(()), column.real.new_zeros(())
    centered = known - known[0]
    mean = centered.mean()
    return known[0] + mean, (centered - mean).abs().square().mean(), known.abs().square().mean()


@torch.no_grad()
def _offsets(means: Tensor, mean: Mean | None, x: Tensor) -> Tensor:
    """How far the targets are from mean functions that do not learn their level, (T,)."""
    parts = list(mean.base_means) if isinstance(mean, MultitaskMean) else [mean] * len(means)
    if len(parts) != len(means):
        parts = [mean] * len(means)
    return torch.stack([_offset(value, part, x) for value, part in zip(means, parts, strict=True)]).abs()


def _offset(value: Tensor, mean: Mean | None, x: Tensor) -> Tensor:
    bias = mean.bias if isinstance(mean, LinearMean) else getattr(mean, "raw_constant", None)
    if mean is None or (isinstance(bias, Tensor) and bias.requires_grad):
        return torch.zeros_like(value)
    return value - mean(x).to(value.dtype).mean()
