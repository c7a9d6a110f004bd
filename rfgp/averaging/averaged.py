"""Gaussian processes of few rows, averaged over their parameters and stacked over scales of inputs and target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
import scipy
import torch
from torch import Generator, Tensor

from .._support import checks
from ..linalg import cholesky
from .functions import DrawnFunctions, chosen_draws
from .half_ranks import InputScale
from .member import Member, Moments, TargetScale
from .mixture import DEGREES, MemberPrediction, Mixture, Tail
from .parameter_draws import Floats
from .table_kernel import fixed_matrices
from .target_transform import TargetTransform, yeo_johnson

MOST_ROWS = 1500
"""Of so many rows a fit takes seconds."""
Scale = tuple[bool, bool]
SCALES: tuple[Scale, ...] = ((False, False), (True, False), (False, True), (True, True))
"""Whether inputs are half ranks, and whether the target is transformed."""
_CHOOSING, _CHOSEN_BY = 400, 300
"""From how many rows on scales are chosen, and by how many."""
_DRAWS, _PROPOSALS, _FEWEST_DRAWS, _FEWEST_PROPOSALS = 24, 200, 8, 32
_SHARE = 0.25
_GROUPS = 8


class AveragedGP:
    r"""A Gaussian process of few rows, whose error bars know that its parameters are learned.

    .. math:: p(y | x) = \sum_k w_k \frac1S \sum_s p_k(y | x, \theta_{ks})

    There are four members k: of standardized inputs or half ranks, and of targets as they are or by the transform of
    Yeo and Johnson. Parameters :math:`\theta_{ks}` are draws from their posterior. The degrees of freedom of the tails
    and the weights are those of the largest density of left-out rows; equal inputs are left out together.

    :param x: inputs (N, d), finite, in float64.
    :param y: targets (N,), finite, which vary.
    :raises ValueError: for other rows.

    Source: Yao, Vehtari, Simpson and Gelman (2018), stacking of predictive distributions.

    >>> x = torch.linspace(0.0, 6.0, 40, dtype=torch.float64).unsqueeze(-1)
    >>> model = AveragedGP(x, x[:, 0].sin())
    >>> found = model.predictive(torch.tensor([[1.0], [30.0]], dtype=torch.float64))
    >>> bool(abs(found.mean[0] - 0.8415) < 0.01), bool(found.stddev[0] < 0.1 < found.stddev[1])
    (True, True)
    """

    members: list[Member]
    tails: list[Tail]
    weights: Floats

    @torch.no_grad()
    def __init__(self, x: Tensor, y: Tensor) -> None:
        x, y = _checked(x, y)
        names, starts = list(SCALES), {}
        rows = torch.from_numpy(np.random.default_rng(0).permutation(len(x))[:_CHOSEN_BY])
        if len(x) > _CHOOSING and bool((y[rows] != y[rows[0]]).any()):
            self._learn(x[rows], y[rows], names, 8, 48, {})
            least = max(_SHARE, 0.5 * float(self.weights.max()))
            starts = {name: member.mode for name, member in zip(names, self.members, strict=True)}
            names = [name for name, weight in zip(names, self.weights, strict=True) if weight >= least]
        work = min(1.0, (_CHOSEN_BY / len(x)) ** 2)
        draws, proposals = max(_FEWEST_DRAWS, int(_DRAWS * work**0.5)), max(_FEWEST_PROPOSALS, int(_PROPOSALS * work))
        self._learn(x, y, names, draws, proposals, starts)

    def _learn(
        self, x: Tensor, y: Tensor, names: list[Scale], draws: int, proposals: int, starts: dict[Scale, Floats]
    ) -> None:
        """Members of these scales."""
        starts, members = dict(starts), []
        targets = {False: TargetScale(y, TargetTransform()), True: TargetScale(y, yeo_johnson(y))}
        scales = {has_ranks: InputScale(x, has_ranks) for has_ranks in dict(names)}
        fixed = {has_ranks: _fixed(scale, x) for has_ranks, scale in scales.items()}
        for has_ranks, is_moved in names:
            scale = scales[has_ranks]
            has_lengthscales = len(scale.kept) <= max(10, min(50, len(x) // 3))
            member = Member(x, y, scale, targets[is_moved], has_lengthscales, fixed[has_ranks])
            member.learn(starts.get((has_ranks, is_moved)), draws, proposals)
            starts.setdefault((has_ranks, True), member.mode)
            members.append(member)
        self._stack(members, x, y)

    def _stack(self, members: list[Member], x: Tensor, y: Tensor) -> None:
        """Take members, with tails and weights by the densities of left-out rows."""
        tails, densities, groups = [], [], _equal_rows(x)
        for member in members:
            moments = member.left_out(groups)
            options = [Tail(degrees) for degrees in DEGREES]
            logs = [MemberPrediction(moments, member.target, tail).log_density(y) for tail in options]
            best = int(np.argmax([part.sum() for part in logs]))
            tails.append(options[best])
            densities.append(logs[best])
        self.weights = stacking_weights(np.stack(densities))
        self.x, self.y, self.members, self.tails = x, y, members, tails

    @torch.no_grad()
    def update(self, x: Tensor, y: Tensor) -> Self:
        """Add rows; scales and parameters stay, and tails and weights are learned again."""
        x, y = _checked(x, y, self.x.shape[1])
        x, y = torch.cat([self.x, x]), torch.cat([self.y, y])
        fixed = {member.scale: _fixed(member.scale, x) for member in self.members}
        self._stack([member.with_rows(x, y, fixed[member.scale]) for member in self.members], x, y)
        return self

    @property
    def limits(self) -> tuple[float, float]:
        """The range of the targets, and half of it on both sides."""
        low, high = float(self.y.min()), float(self.y.max())
        return 1.5 * low - 0.5 * high, 1.5 * high - 0.5 * low

    def _mixture(self, moments: Sequence[Moments]) -> Mixture:
        parts = zip(moments, self.members, self.tails, strict=True)
        components = [MemberPrediction(found, member.target, tail) for found, member, tail in parts]
        return Mixture(components, self.weights, self.limits)

    @torch.no_grad()
    def predictive(self, x: Tensor) -> Mixture:
        """The distributions of new targets at inputs (M, d), each alone."""
        x = self._inputs(x)
        return self._mixture([member.predict(x) for member in self.members])

    def _inputs(self, x: Tensor) -> Tensor:
        """New inputs (M, d), checked, in float64."""
        return checks.finite(checks.inputs(x, self.x.shape[1]), "x").double().cpu()

    @torch.no_grad()
    def function(self, x: Tensor) -> Mixture:
        """The distributions of the function without noise at inputs (M, d), each alone."""
        x = self._inputs(x)
        parts = [member.predict(x, has_noise=False) for member in self.members]
        pairs = zip(parts, self.members, strict=True)
        components = [MemberPrediction(found, member.target, Tail(math.inf)) for found, member in pairs]
        return Mixture(components, self.weights, self.limits)

    @torch.no_grad()
    def draw_functions(self, num_functions: int, generator: Generator | None = None) -> list[DrawnFunctions]:
        """Functions drawn from the posterior, in at most eight groups that have parameters of their own."""
        num_functions = checks.positive_integer("num_functions", num_functions)
        generator = checks.generator(generator)
        counts = [len(member.vectors) for member in self.members]
        chosen = chosen_draws(self.weights, counts, min(_GROUPS, num_functions))
        each = -(-num_functions // len(chosen))
        return [DrawnFunctions(self.members[member], place, each, generator) for member, place in chosen]

    def leave_one_out(self, x: Tensor, y: Tensor) -> Mixture:
        """The distributions of the targets that were fitted, each by all other rows; a ValueError for other rows."""
        return self.leave_group_out(x, y, torch.arange(len(self.y)))

    @torch.no_grad()
    def leave_group_out(self, x: Tensor, y: Tensor, groups: Tensor) -> Mixture:
        """The distributions of the targets that were fitted, each by the rows of other groups.

        :param groups: the number of the group of each row, (N,).
        :raises ValueError: for other rows, or another number of groups.
        """
        x, y = _checked(x, y, self.x.shape[1])
        if not (torch.equal(x, self.x) and torch.equal(y, self.y)):
            raise ValueError("expected the rows that were fitted, got others; pass those, in the same order")
        if checks.tensor(groups, "groups").shape != self.y.shape:
            raise ValueError(
                f"expected a group for each of {len(self.y)} rows, got {tuple(groups.shape)}; number the groups of all"
            )
        members = [(groups == number).nonzero().flatten() for number in groups.unique()]
        several = [rows for rows in members if len(rows) > 1]
        return self._mixture([member.left_out(several) for member in self.members])

    @torch.no_grad()
    def covariance(self, x: Tensor) -> Tensor:
        """The covariance (M, M) of new targets at inputs (M, d).

        That of a member with a transformed target has the correlations on its scale, and the variances of the target.
        """
        x = self._inputs(x)
        marginal = self.predictive(x)
        total, mean = torch.zeros(len(x), len(x), dtype=x.dtype), marginal.mean
        for member, component, weight in zip(self.members, marginal.components, self.weights, strict=True):
            share = float(weight) / len(member.vectors)
            for place, (_, covariance) in enumerate(member.joint(x)):
                first, second = component.of_draw(place).mean_and_square(marginal.limits)
                apart, std = torch.from_numpy(first) - mean, torch.from_numpy(np.sqrt(np.maximum(second - first**2, 0)))
                root = std / covariance.diagonal().sqrt()
                total += share * (covariance * torch.outer(root, root) + torch.outer(apart, apart))
        return total

    @torch.no_grad()
    def sample(self, x: Tensor, num_samples: int, generator: Generator | None = None) -> Tensor:
        """Draws (S, M) of new targets at inputs (M, d), which have the correlations of the processes.

        Each is drawn from one of them: a normal vector, whose entries have the tails and the scale of its member.
        """
        x, num_samples = self._inputs(x), checks.positive_integer("num_samples", num_samples)
        generator = checks.generator(generator)
        draws = torch.empty(num_samples, len(x), dtype=x.dtype)
        shares = torch.cat(
            [torch.full((len(m.vectors),), w / len(m.vectors)) for m, w in zip(self.members, self.weights, strict=True)]
        )
        chosen = torch.multinomial(shares, num_samples, replacement=True, generator=generator)
        number = 0
        for member, tail in zip(self.members, self.tails, strict=True):
            for mean, covariance in member.joint(x):
                rows = (chosen == number).nonzero().flatten()
                number += 1
                if len(rows):
                    std = covariance.diagonal().sqrt()
                    root = cholesky(covariance / torch.outer(std, std))
                    normal = torch.randn(len(rows), len(x), generator=generator, dtype=x.dtype) @ root.mT
                    steps = torch.from_numpy(tail.icdf(scipy.special.ndtr(normal.numpy())))
                    found = member.target.inverse(mean + std * steps)
                    draws[rows] = found if member.target.transform.kind == "none" else found.clamp(*self.limits)
        return draws

    def log_marginal_likelihood(self) -> Tensor:
        """The log density of the targets at the most probable parameters, averaged over the members by weight."""
        logs = [member.log_evidence() + float(member.target.log_slope(self.y).sum()) for member in self.members]
        return torch.tensor(np.logaddexp.reduce(np.log(self.weights) + logs))


def _fixed(scale: InputScale, x: Tensor) -> Tensor:
    scaled = scale(x)
    return fixed_matrices(scaled, scaled)


def _checked(x: Tensor, y: Tensor, num_columns: int | None = None) -> tuple[Tensor, Tensor]:
    """Rows in float64; a ValueError for others."""
    x = checks.finite(checks.inputs(x, num_columns), "x").double().cpu()
    y = checks.finite(checks.real_tensor(y, "y"), "y").double().cpu()
    if y.shape != x.shape[:1] or not len(y):
        raise ValueError(f"expected y of shape ({len(x)},) for as many rows, got {tuple(y.shape)}; pass one target")
    if num_columns is None and not bool((y != y[0]).any()):
        raise ValueError("expected targets that vary, got a single value; take a constant")
    return x, y


def _equal_rows(x: Tensor) -> list[Tensor]:
    """The numbers of rows with equal inputs, for each input that several rows have."""
    _, numbers, counts = x.unique(dim=0, return_inverse=True, return_counts=True)
    return [(numbers == number).nonzero().flatten() for number in (counts > 1).nonzero().flatten()]


def stacking_weights(log_densities: Floats, prior: float = 1.0, num_steps: int = 200) -> Floats:
    """Weights (K,) of the largest mean log density (K, N) of left-out rows, with a Dirichlet prior, by EM.

    Source: Yao, Vehtari, Simpson and Gelman (2018).

    >>> stacking_weights(np.log([[1.0, 1.0, 1.0], [1e-9, 1e-9, 1e-9]])).round(2)
    array([0.8, 0.2])
    """
    densities = np.exp(log_densities - log_densities.max(0))
    weights = np.full(len(densities), 1.0 / len(densities))
    for _ in range(num_steps):
        weights = weights * (densities / (weights @ densities)).sum(1) + prior
        weights /= weights.sum()
    return weights
