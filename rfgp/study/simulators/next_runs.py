"""Which runs to do next: those that leave the least variance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...diagnostics.sensitivity.sampled import levels

if TYPE_CHECKING:
    from .emulator import Emulator
    from .runs import Runs

_NUM_CANDIDATES = 512
_SAFE, _QUARTER = 0.9, 0.75


@torch.no_grad()
def next_runs(emulator: Emulator, runs: Runs, count: int) -> tuple[Tensor, Tensor]:
    r"""Inputs (count, d), one after the other, and the standard deviations (1 + count, T) before and after each.

    .. math:: x_{m + 1} = \arg\min_x \sum_t \frac{1}{\sigma_t^2}\, E_X\,
        \mathrm{Var}\big(f_t(X) \mid x_1, \dots, x_m, x\big)

    Candidates and X are Sobol' points of the distributions of the inputs, without half of a point at either end, and
    :math:`\sigma_t` is the standard deviation of the runs. Standard deviations are roots of means over X, in the
    units of the outputs. Where runs failed, points X have the weights of the probability :math:`p_t` of success, what
    a candidate gains is multiplied by it, and candidates have to succeed with a probability of .9, or be in the most
    probable quarter. What bounds cut off of the variance counts as known.

    Source: Cohn (1996); Sacks et al. (1989), integrated mean squared error; Gelbart, Snoek and Adams (2014), unknown
    constraints.
    """
    end = 0.5 / _NUM_CANDIDATES
    places = levels(_NUM_CANDIDATES, len(runs.inputs), seed=0).clamp(end, 1.0 - end)
    candidates = runs.points(places)
    covariance, noise = emulator.covariances(candidates)
    success = emulator.success(candidates)
    least = success.amin(-1)
    is_safe = least >= least.quantile(_QUARTER).clamp_max(_SAFE)
    share = (emulator.inside(candidates) * success / success.sum(0)).mT
    chosen, left = [], [(covariance.diagonal(dim1=-2, dim2=-1) * share).sum(-1)]
    for _ in range(count):
        variance = covariance.diagonal(dim1=-2, dim2=-1) + noise
        gain = (success.mT * (share.unsqueeze(-1) * covariance.square()).sum(-2) / variance).sum(0)
        best = int(torch.where(is_safe, gain, -1.0).argmax())
        column = covariance[..., best]
        covariance = covariance - column.unsqueeze(-1) * (column / variance[:, best, None]).unsqueeze(-2)
        chosen.append(best)
        left.append((covariance.diagonal(dim1=-2, dim2=-1) * share).sum(-1))
    return candidates[chosen], torch.stack(left).clamp_min(0.0).sqrt() * emulator.unit
