"""Members that average over a bank of kernels, for many targets at once."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Generator, Tensor

from .column_scale import ColumnScale
from .kernel_bank import RATIOS, KernelBank, KernelCross, kernels, log_evidences, scales
from .member import Functions, JointNormal, Member, Moments, by_rows, group_left_out

_MOST_KERNELS, _SMALLEST_WEIGHT, _STEPS = 24, 1e-3, 30
_SMALLEST_VARIANCE = 1e-12
_BLOCK = 1000
"""Predictions are made for so many rows at once."""


class Baseline(Protocol):
    """Predictions of targets by another model, and those of training rows by what was learned from other rows.

    :ivar left_out: the latter, (N, T).
    """

    left_out: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Predictions (M, T) at inputs (M, d)."""
        ...


LearnsBaseline = Callable[[Tensor, Tensor], Baseline]
"""From inputs (N, d) and targets (N, T)."""


class _Candidate(NamedTuple):
    """A kernel and noise ratio of the bank, and the targets that have it."""

    shape: int
    ratio: int
    targets: Tensor


class BankMember(Member[KernelBank]):
    r"""Gaussian processes of T targets, each a mixture over the shapes and noise ratios of a bank.

    .. math:: p(y_t) = \sum_q w_{qt}\, N(y_t; 0, \sigma^2_{qt} (K_q + r_q I)), \qquad
        w_{qt} \propto \pi_q \int N(y_t; 0, \sigma^2 (K_q + r_q I))\, p(\sigma^2)\, d\sigma^2

    The prior :math:`\pi` of shapes and ratios is learned from all targets by EM, the scales :math:`\sigma^2_{qt}` are
    the most probable ones, and the mixtures are matched by normals.

    :param bank: the kernels.
    :param target: the scale of the targets.
    :param y: the targets (N, T).
    :param rotates: whether processes are those of principal components of the targets.
    :param baseline: what predicts targets on their scale; the processes are those of what it leaves over.
    :param base: what it predicts for these rows, (N, T), as its ``left_out`` does.
    """

    num_draws = 1

    def __init__(
        self,
        bank: KernelBank,
        target: ColumnScale,
        y: Tensor,
        rotates: bool = False,
        baseline: Baseline | None = None,
        base: Tensor | None = None,
    ) -> None:
        self.target, self.baseline = target, baseline
        scaled = target.forward(y)
        base = torch.zeros_like(scaled) if base is None else base
        std = (scaled - base).std(0, correction=0)
        self.unit = torch.where(std > 0.0, std, 1.0)
        self.rotation = _principal_axes((scaled - base) / self.unit) if rotates else None
        self._condition(bank, scaled, base)

    def _condition(self, bank: KernelBank, scaled: Tensor, base: Tensor) -> None:
        """Take rows: their targets on the scale, and what the baseline says of them, (N, T); learn the weights."""
        self.rows, self.base = bank, base
        self._take(scaled)
        logs = torch.cat([log_evidences(bank.precisions(k), self._projected(k)) for k in range(len(bank.shapes))])
        self.weights, prior = posterior_weights(logs)
        self.evidence = float(torch.logsumexp(logs + prior.log(), 0).sum())

    def _take(self, scaled: Tensor) -> None:
        """Take targets (N, T) on the scale."""
        self.scaled, standard = scaled, (scaled - self.base) / self.unit
        self.y = standard if self.rotation is None else standard @ self.rotation

    @property
    def candidates(self) -> list[_Candidate]:
        """The kernels and noise ratios that have weight."""
        used = (self.weights > 0.0).any(1).nonzero().flatten().tolist()
        count = len(RATIOS)
        return [_Candidate(q // count, q % count, self.weights[q].nonzero().flatten()) for q in used]

    def _projected(self, shape: int) -> Tensor:
        return self.rows.spectrum(shape).vectors.mT @ self.y

    @property
    def mass(self) -> Tensor:
        """The sums of weights over ratios and targets, for each shape of the bank."""
        return self.weights.sum(1).reshape(-1, len(RATIOS)).sum(1)

    def _each(self) -> Iterator[tuple[_Candidate, Tensor, Tensor, Tensor, Tensor]]:
        """For each candidate its weights (t,), inverse eigenvalues (N,), projected targets (N, t), scales (t,)."""
        projected: dict[int, Tensor] = {}
        for candidate in self.candidates:
            shape, ratio, targets = candidate
            if shape not in projected:
                projected[shape] = self._projected(shape)
            precision, part = self.rows.precisions(shape)[ratio], projected[shape][:, targets]
            weights = self.weights[shape * len(RATIOS) + ratio, targets]
            yield candidate, weights, precision, part, scales(precision, part)

    def left_out(self, groups: Sequence[Tensor] = ()) -> Moments:
        first, second = torch.zeros_like(self.y), torch.zeros_like(self.y)
        for (shape, _, targets), weights, precision, projected, scale in self._each():
            vectors = self.rows.spectrum(shape).vectors
            alpha, diagonal = vectors @ (precision.unsqueeze(-1) * projected), vectors.square() @ precision
            block = functools.partial(_block, vectors, precision)
            mean, variance = group_left_out(self.y[:, targets], alpha, diagonal, block, groups)
            _accumulate(first, second, targets, weights, mean, torch.outer(variance, scale))
        return self._matched(first, second, self.base)

    @classmethod
    def predict_all(cls, members: Sequence[BankMember], x: Tensor, has_noise: bool = True) -> list[Moments]:
        bases: dict[int, Tensor] = {}
        for member in members:
            if id(member.baseline) not in bases:
                bases[id(member.baseline)] = member._baseline(x)
        found: dict[int, Moments] = {}
        for alike in by_rows(members):
            bank, parts = alike[0].rows, []
            shapes = sorted({candidate.shape for member in alike for candidate in member.candidates})
            for new in bank.scale(x).split(_BLOCK):
                crosses = bank.crosses(new, shapes)
                parts.append([member._mixed(crosses, len(new), has_noise) for member in alike])
            for member, of_member in zip(alike, zip(*parts, strict=True), strict=True):
                first, second = (torch.cat(part) for part in zip(*of_member, strict=True))
                found[id(member)] = member._matched(first, second, bases[id(member.baseline)])
        return [found[id(member)] for member in members]

    def _mixed(self, crosses: dict[int, KernelCross], count: int, has_noise: bool) -> tuple[Tensor, Tensor]:
        """Means (M, T) of the processes at new inputs, and of their squares."""
        first = self.y.new_zeros(count, self.y.shape[1])
        second = torch.zeros_like(first)
        for (shape, ratio, targets), weights, precision, projected, scale in self._each():
            cross, latent = crosses[shape]
            variance = latent[ratio] + float(RATIOS[ratio]) if has_noise else latent[ratio]
            mean = cross.mT @ (precision.unsqueeze(-1) * projected)
            _accumulate(first, second, targets, weights, mean, torch.outer(variance, scale))
        return first, second

    def _baseline(self, x: Tensor) -> Tensor:
        return x.new_zeros(()) if self.baseline is None else self.baseline(x)

    def _matched(self, first: Tensor, second: Tensor, base: Tensor) -> Moments:
        """Moments of the targets from those of the components."""
        variance = (second - first.square()).clamp_min(_SMALLEST_VARIANCE)
        if self.rotation is not None:
            first, variance = first @ self.rotation.mT, variance @ self.rotation.square().mT
        return Moments((base + self.unit * first).unsqueeze(0), (self.unit.square() * variance).unsqueeze(0))

    def joint(self, x: Tensor, has_noise: bool = True) -> Callable[[int], list[JointNormal]]:
        new, moments, found = self.rows.scale(x), self.predict(x, has_noise), list(self._each())
        crosses = self.rows.crosses(new, sorted({candidate.shape for candidate in self.candidates}))
        priors = dict(zip(crosses, kernels(new, new, [self.rows.shapes[k] for k in crosses]), strict=True))
        amounts = x.new_zeros(len(found), self.y.shape[1])  # weights times scales
        first, means = x.new_zeros(len(x), self.y.shape[1]), []
        for number, ((shape, _, targets), weights, precision, projected, scale) in enumerate(found):
            amounts[number, targets] = weights * scale
            means.append(crosses[shape][0].mT @ (precision.unsqueeze(-1) * projected))
            first[:, targets] += weights * means[-1]
        owners = torch.cat([candidate.targets for candidate, *_ in found])
        weights_of_means = torch.cat([weights for _, weights, *_ in found])
        apart = (torch.cat(means, dim=1) - first[:, owners]).mT
        shapes = torch.tensor([candidate.shape for candidate, *_ in found])
        ratios = RATIOS[[candidate.ratio for candidate, *_ in found]]
        precisions = torch.stack([precision for _, _, precision, *_ in found])
        axes = torch.eye(self.y.shape[1], dtype=x.dtype) if self.rotation is None else self.rotation

        def of_target(number: int) -> list[JointNormal]:
            shares = axes[number].square()
            amount = amounts @ shares
            spread = (shares[owners] * weights_of_means).sqrt()
            of_means = spread[spread > 0.0].unsqueeze(-1) * apart[spread > 0.0]
            total = of_means.mT @ of_means
            for shape, (cross, _) in crosses.items():
                own = (shapes == shape) & (amount > 0.0)
                if bool(own.any()):
                    reduction = (amount[own] @ precisions[own]).sqrt().unsqueeze(-1) * cross
                    total += amount[own].sum() * priors[shape] - reduction.mT @ reduction
            total.diagonal().add_(amount @ ratios if has_noise else 0.0)
            return [JointNormal(moments.mean[0, :, number], self.unit[number].square() * total)]

        return of_target

    def of_draws(self, places: Sequence[int]) -> BankMember:
        return self

    def draw_functions(self, num_functions: int, generator: Generator | None) -> Functions:
        chosen = torch.multinomial(self.weights.mT, 1, generator=generator).flatten()
        numbers = chosen.unique().tolist()
        groups = [(chosen == number).nonzero().flatten() for number in numbers]
        drawn = [
            self.rows.drawn(q // len(RATIOS), q % len(RATIOS), self.y[:, targets], num_functions, generator)
            for q, targets in zip(numbers, groups, strict=True)
        ]

        def values(x: Tensor) -> Tensor:
            new = self.rows.scale(x)
            found = x.new_empty(len(x), 1 + num_functions, self.y.shape[1])
            for functions, targets in zip(drawn, groups, strict=True):
                found[..., targets] = functions(new)
            if self.rotation is not None:
                found = found @ self.rotation.mT
            base = self._baseline(x)
            return self.target.inverse(self.unit * found + (base.unsqueeze(1) if base.dim() else base))

        return values

    def log_evidence(self) -> float:
        slopes = self.target.log_slope(self.target.inverse(self.scaled)) - self.unit.log()
        return self.evidence + float(slopes.sum())

    def with_targets(self, y: Tensor) -> BankMember:
        twin = copy.copy(self)
        twin._take(self.target.forward(y))
        return twin

    def with_rows(self, rows: KernelBank, x: Tensor, y: Tensor) -> BankMember:
        twin, base = copy.copy(self), self._baseline(x).expand(y.shape)
        twin._condition(rows, torch.cat([self.scaled, self.target.forward(y)]), torch.cat([self.base, base]))
        return twin

    def of_some(self, rows: KernelBank, kept: Tensor) -> BankMember:
        twin = copy.copy(self)
        twin._condition(rows, self.scaled[kept], self.base[kept])
        return twin


def _block(vectors: Tensor, precision: Tensor, rows: Tensor) -> Tensor:
    """Blocks (G, size, size) of a matrix with eigenvectors (N, N) and eigenvalues (N,), for rows (G, size)."""
    some = vectors[rows]
    return (some * precision) @ some.mT


def _accumulate(
    first: Tensor, second: Tensor, targets: Tensor, weights: Tensor, mean: Tensor, variance: Tensor
) -> None:
    """Add weighted means and squares of some targets."""
    first[:, targets] += weights * mean
    second[:, targets] += weights * (variance + mean.square())


def _principal_axes(standard: Tensor) -> Tensor:
    """The principal components of columns (N, T), (T, K)."""
    return torch.linalg.svd(standard - standard.mean(0), full_matrices=False).Vh.mT


def posterior_weights(log_evidences: Tensor) -> tuple[Tensor, Tensor]:
    """Weights (Q, T) of kernels by their log evidences, and their prior (Q, 1), which is learned from all T targets.

    Small ones are zero, as are all but the largest 24 of a target.

    >>> posterior_weights(torch.log(torch.tensor([[0.8, 0.5], [0.2, 0.5]])))[0].round(decimals=1)
    tensor([[0.9000, 0.7000],
            [0.1000, 0.3000]])
    """
    evidence = (log_evidences - log_evidences.amax(0)).exp()
    count, num_targets = evidence.shape
    prior = evidence.new_full((count, 1), 1.0 / count)
    for _ in range(_STEPS if num_targets > 1 else 0):
        share = prior * evidence
        prior = ((share / share.sum(0)).sum(1, keepdim=True) + 1.0 / count) / (num_targets + 1.0)
    weights = prior * evidence
    weights /= weights.sum(0)
    least = weights.topk(min(_MOST_KERNELS, count), dim=0).values[-1]
    weights = torch.where(weights >= least.clamp_min(_SMALLEST_WEIGHT), weights, 0.0)
    return weights / weights.sum(0), prior
