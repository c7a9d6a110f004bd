"""Tails and weights of members, by the densities of targets that are left out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .member import Member
from .mixture import DEGREES, MixtureComponent, Tail

_PASSES, _STEPS, _SMALLEST = 4, 60, 1e-3
_LEAST, _SHARED, _MOST_TARGETS = 0.05, 0.5, 4


class Stack(NamedTuple):
    """The tails of members, and their weights (K, T)."""

    tails: list[Tail]
    weights: Tensor

    @property
    def shares(self) -> list[float]:
        """The mean weights of the members."""
        return self.weights.mean(1).tolist()


def stacked(members: Sequence[Member[Any]], y: Tensor, known: Tensor, groups: Sequence[Tensor]) -> Stack:
    """Degrees of freedom of every member and target (N, T), and then weights, of the largest left-out densities.

    :param known: which targets count, (N, T).
    :param groups: as in :meth:`rfgp.averaging.member.Member.left_out`.
    """
    tails, densities, resolution = [], [], resolutions(torch.where(known, y, torch.nan))
    for member in members:
        moments, best, logs = member.left_out(groups), torch.zeros_like(y[0]), torch.full_like(y, -math.inf)
        for degrees in DEGREES:
            tail = Tail(torch.full_like(y[0], degrees))
            found = torch.where(known, log_scores(MixtureComponent(moments, member.target, tail), y, resolution), 0.0)
            is_better = found.sum(0) > logs.sum(0)
            best, logs = torch.where(is_better, tail.degrees, best), torch.where(is_better, found, logs)
        tails.append(Tail(best))
        densities.append(logs)
    return Stack(tails, stacking_weights(torch.stack(densities)))


def stacking_weights(log_densities: Tensor) -> Tensor:
    """Weights (K, T) of the largest mean log density (K, N, T) of left-out rows, with a Dirichlet prior, by EM.

    The prior of several targets is centered at their mean weights. Weights below a thousandth are zero.

    Source: Yao, Vehtari, Simpson and Gelman (2018).

    >>> stacking_weights(torch.log(torch.tensor([[[1.0]] * 3, [[1e-9]] * 3]))).round(decimals=2).flatten()
    tensor([0.8000, 0.2000])
    """
    count, _, num_targets = log_densities.shape
    densities = (log_densities - log_densities.amax(0)).exp().permute(2, 1, 0).contiguous()  # (T, N, K)
    prior, weights = densities.new_ones(count), densities.new_full((num_targets, count), 1.0 / count)
    for _ in range(_PASSES if num_targets > 1 else 1):
        for _ in range(_STEPS):
            mixed = torch.bmm(densities, weights.unsqueeze(-1))
            weights = weights * torch.bmm(mixed.reciprocal().mT, densities).squeeze(1) + prior
            weights = weights / weights.sum(-1, keepdim=True)
        prior = _LEAST + _SHARED * min(num_targets, _MOST_TARGETS) * count * weights.mean(0)
    weights = torch.where(weights >= _SMALLEST, weights, 0.0)
    return (weights / weights.sum(-1, keepdim=True)).mT.contiguous()


def resolutions(y: Tensor) -> Tensor:
    """The smallest differences (T,) of rounded targets (N, T); zero where less than half of the values are repeated."""
    found = []
    for column in y.mT:
        known = column[~column.isnan()]
        values = known.unique()
        found.append(values.diff().min() if 1 < len(values) < 0.5 * len(known) else values.new_zeros(()))
    return torch.stack(found)


def log_scores(component: MixtureComponent, y: Tensor, resolution: Tensor) -> Tensor:
    """Log densities of targets (N, T); those of rounded ones are means over what is rounded to them."""
    density = component.log_density(y)
    if not bool(resolution.any()):
        return density
    share = component.cdf(y + 0.5 * resolution) - component.cdf(y - 0.5 * resolution)
    return torch.where((resolution > 0.0) & (share > 1e-12), (share / resolution).log(), density)
