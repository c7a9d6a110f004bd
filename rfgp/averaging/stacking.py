"""Tails and weights of members, by the densities of targets that are left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .column_scale import ColumnScale
from .member import Member, Moments
from .mixture import DEGREES, MixtureComponent, Tail

_PASSES, _STEPS, _SMALLEST = 4, 60, 1e-3
_LEAST, _SHARED, _MOST_TARGETS = 0.05, 0.5, 4


class Stack(NamedTuple):
    """The tails of members, their weights (K, T), and log densities (N, T) of left-out targets."""

    tails: list[Tail]
    weights: Tensor
    log_densities: Tensor

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
        tail, logs = best_tail(left_out_scores(member, y, groups, resolution), known)
        tails.append(tail)
        densities.append(logs)
    logs = torch.stack(densities)
    weights = stacking_weights(logs)
    return Stack(tails, weights, mixed(logs, weights, known))


def mixed(log_densities: Tensor, weights: Tensor, known: Tensor) -> Tensor:
    """The log densities (N, T) of known targets under mixtures of members (K, N, T) with weights (K, T); else NaN."""
    return torch.where(known, (log_densities + weights.log().unsqueeze(1)).logsumexp(0), torch.nan)


def best_tail(
    log_densities: Callable[[Tail], Tensor],
    known: Tensor,
    degrees: Sequence[float] = DEGREES[:-1],
    least_gain: float = 0.0,
) -> tuple[Tail, Tensor]:
    """The degrees of freedom of each target of the largest density, and the log densities (N, T), zero where unknown.

    :param log_densities: those of targets (N, T) by their tails.
    :param known: which targets count, (N, T).
    :param degrees: finite ones to choose from.
    :param least_gain: the nats by which another tail is to be better than the normal one.
    """
    best = torch.full((known.shape[1],), math.inf, dtype=torch.float64)
    normal = logs = torch.where(known, log_densities(Tail(best)), 0.0)
    for number in degrees:
        found = torch.where(known, log_densities(Tail(torch.full_like(best, number))), 0.0)
        is_better = found.sum(0) > torch.maximum(logs.sum(0), normal.sum(0) + least_gain)
        best, logs = torch.where(is_better, number, best), torch.where(is_better, found, logs)
    return Tail(best), logs


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


def left_out_scores(member: Member[Any], y: Tensor, groups: Sequence[Tensor], resolution: Tensor) -> LogScores:
    """The log densities of targets (N, T) that are left out, by a member and its tails."""
    return LogScores(member.left_out(groups), member.target, y, resolution, member.optimism)


class LogScores:
    """Log densities of targets (N, T) by their tails; those of rounded ones are means over what is rounded to them.

    :param moments: what a member predicts of the targets.
    :param target: the scale of the targets.
    :param resolution: the differences to which they are rounded, (T,).
    :param optimism: what they are less, see :class:`rfgp.averaging.member.Member`.
    """

    def __init__(
        self, moments: Moments, target: ColumnScale, y: Tensor, resolution: Tensor, optimism: float = 0.0
    ) -> None:
        self.moments, self.target, self.y, self.resolution = moments, target, y, resolution
        self.optimism = optimism
        self.residuals = MixtureComponent(moments, target, Tail(torch.full_like(y[0], math.inf))).residuals(y)

    def __call__(self, tail: Tail) -> Tensor:
        """The log densities (N, T)."""
        density = self.residuals.log_density(tail)
        if not bool(self.resolution.any()):
            return density - self.optimism
        component, half = MixtureComponent(self.moments, self.target, tail), 0.5 * self.resolution
        share = component.cdf(self.y + half) - component.cdf(self.y - half)
        is_rounded = (self.resolution > 0.0) & (share > 1e-12)
        return torch.where(is_rounded, (share / self.resolution).log(), density) - self.optimism
