"""Whether an emulator can be trusted: every run by others."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .emulator import Emulator

_LEVEL, _WIDTH = 0.95, 1.959964
_MOST_WIDENED = 3.0


@dataclass(frozen=True)
class Check:
    """How well every run is predicted by others, for each of T outputs.

    Means and intervals are clipped to the bounds of the outputs.

    :param rmse: the root mean squared error, in the units of the outputs, (T,).
    :param explained: the share of the variance of the runs that is predicted, (T,).
    :param coverage: the share of the runs inside 95 % intervals, (T,).
    :param spread: by what the standard deviations are multiplied from here on, (T,): so much that a new run, which is
        like these, is inside its interval with a probability of 95 %, but not less than one.
    :param width: how wide the 95 % intervals of the runs are from here on, as a median over the runs that are not known
        to be at a bound, in the units of the outputs, (T,).
    :param worst: the place of the run that is farthest outside its interval, (T,), and its distance in standard
        deviations, ``farthest``.
    """

    rmse: Tensor
    explained: Tensor
    coverage: Tensor
    spread: Tensor
    width: Tensor
    worst: Tensor
    farthest: Tensor


@torch.no_grad()
def checked(emulator: Emulator, y: Tensor) -> Check:
    r"""The check of an emulator by the outputs (N, T) of its runs.

    Of N + 1 runs that are alike, each is as likely to be the farthest outside its interval. So 95 % of new runs are no
    farther outside than the run of rank :math:`\lceil .95 (N + 1) \rceil`, or than the last one.

    Source: Vovk, Gammerman and Shafer (2005), conformal prediction.
    """
    mean, variance = emulator.left_out()
    error = y - emulator.limits.clipped(mean)
    distance = torch.where(error == 0.0, 0.0, (y - mean) / variance.sqrt())  # a bound is in intervals that reach it
    count = (~y.isnan()).sum(0)
    coverage = (distance.abs() <= _WIDTH).sum(0).double() / count
    ranks = [min(math.ceil(_LEVEL * (n + 1)), n) for n in count.tolist()]
    farther = distance.abs().sort(dim=0).values[torch.tensor(ranks) - 1, torch.arange(len(ranks))]
    spread = (farther / _WIDTH).clamp(1.0, _MOST_WIDENED)
    square, whole = error.square().nanmean(0), (y - y.nanmean(0)).square().nanmean(0)
    half = _WIDTH * spread * variance.sqrt() + 0.0 * y
    width = emulator.limits.clipped(mean + half) - emulator.limits.clipped(mean - half)
    width = torch.where((width == 0.0) & (width > 0.0).any(0), torch.nan, width)
    farthest, worst = distance.abs().nan_to_num(0.0).max(0)
    return Check(square.sqrt(), 1.0 - square / whole, coverage, spread, width.nanmedian(0).values, worst, farthest)
