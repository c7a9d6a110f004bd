"""Gaussian processes of few rows, averaged over their parameters and stacked over scales of inputs and targets."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Generator, Tensor

from .._support import checks
from ..linalg import cholesky
from .bank_member import LearnsBaseline
from .error_correlations import correlation_root
from .fitted_rows import FittedRows
from .gaps import imputations
from .member import Functions, Member, Moments, equal_rows, groups_by_size, groups_of_fitted, predictions
from .mixture import Mixture, MixtureComponent, QuantileCurves, Tail
from .one_target import members_of_one
from .several_targets import members_of_several
from .stacking import left_out_scores, mixed, resolutions, stacked

_GROUPS, _EDGE, _SMALLEST = 8, 1e-6, 1e-300


class AveragedGP(FittedRows):
    r"""Gaussian processes of few rows, whose error bars know that their parameters are learned.

    .. math:: p(y | x) = \sum_k w_k \frac1S \sum_s p_k(y | x, \theta_{ks})

    For one target there are four members k: of standardized inputs or half ranks, and of the target as it is or by the
    transform of Yeo and Johnson. Others have the kernel of smooth functions, where noise is small, or inputs after a
    linear map, where there are ten rows for each of its weights. Parameters :math:`\theta_{ks}` are draws from their
    posterior, in number as the weight of the member; of more than 400 rows they are the most probable ones. Several
    targets share a bank of kernels on three scales of the inputs: members have the targets, transformed or not, or
    their principal components. One more has what a baseline leaves over. The degrees of freedom of the tails and the
    weights of each target are those of the largest density of left-out rows; equal inputs are left out together.

    :param x: inputs (N, d), finite, in float64.
    :param y: targets (N,), finite, or (N, T), where NaN is missing, which vary. Missing values are drawn given all that
        is known of the same rows and the same targets, and count in no left-out density; processes with lengthscales of
        all inputs have the rows where their target is known instead.
    :param learns_baseline: what learns another model, such as a forest, from inputs (N, d) and targets (N, T): a
        function that predicts targets (M, T), with an attribute ``left_out``, predictions of the training rows by what
        was learned from others.
    :param bounds: the lower and the upper bound of one target, such as (0, 1) for a share. Where left-out densities
        prefer it, its logit is learned, and all that is predicted lies within.
    :raises ValueError: for other rows, for bounds that are not finite, and for targets outside of them.

    Source: Yao, Vehtari, Simpson and Gelman (2018), stacking of predictive distributions.

    >>> x = torch.linspace(0.0, 6.0, 40, dtype=torch.float64).unsqueeze(-1)
    >>> model = AveragedGP(x, x[:, 0].sin())
    >>> found = model.predictive(torch.tensor([[1.0], [30.0]], dtype=torch.float64))
    >>> bool(abs(found.mean[0] - 0.8415) < 0.01), bool(found.stddev[0] < 0.1 < found.stddev[1])
    (True, True)
    """

    members: list[Member[Any]]
    tails: list[Tail]
    weights: Tensor

    @torch.no_grad()
    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        learns_baseline: LearnsBaseline | None = None,
        bounds: tuple[float, float] | None = None,
    ) -> None:
        x, y = _checked(x, y)
        ends = None if bounds is None else _checked_bounds(bounds, y)
        if learns_baseline is not None and not callable(learns_baseline):
            raise ValueError(
                f"expected a function of rows for learns_baseline, got {learns_baseline!r}; pass what learns a baseline"
            )
        self.num_inputs, self.has_outputs, together = x.shape[1], y.dim() > 1, equal_rows(x)
        targets = y.reshape(len(y), -1)
        if targets.shape[1] == 1:
            members = members_of_one(x, targets, together, learns_baseline, ends)
        else:
            known, draws = ~targets.isnan(), imputations(x, targets, together)
            members, targets = members_of_several(x, draws, known, together, learns_baseline), draws[0]
        self._stack(members, x, y, targets)

    def _stack(self, members: list[Member[Any]], x: Tensor, y: Tensor, targets: Tensor) -> None:
        """Take members and rows, with tails and weights by the densities of known values that are left out.

        :param targets: the targets (N, T), with draws of missing values.
        """
        known = ~y.reshape(targets.shape).isnan()
        stack = stacked(members, targets, known, groups_by_size(equal_rows(x)))
        kept = [k for k, share in enumerate(stack.shares) if share > 0.0]
        self.members, self.tails = [members[k] for k in kept], [stack.tails[k] for k in kept]
        self.x, self.y, self.targets, self.weights = x, y, targets, stack.weights[kept]
        self.left_out_log_density = stack.log_densities.reshape(y.shape)

    @torch.no_grad()
    def update(self, x: Tensor, y: Tensor) -> Self:
        """Add rows; scales and draws of parameters stay, and tails and weights are learned again.

        Missing values of the new rows are drawn from their predictions, each row alone.

        :raises ValueError: for other rows, and for targets outside of the :attr:`support`.
        """
        x, y = _checked(x, y, self)
        if not self.allows(y):
            low, high = (float(end[0]) for end in self.support)
            raise ValueError(
                f"expected targets within the bounds {low:g} to {high:g} of the model, got {float(y.min()):g} to "
                f"{float(y.max()):g}; learn another one from all rows without bounds"
            )
        new = y
        if bool(y.isnan().any()):
            generator = Generator().manual_seed(len(self.y))
            normal = torch.randn(1, *y.shape, generator=generator, dtype=y.dtype)
            drawn = self.predictive(x).of_scores(self._correlated(normal, generator)[0])
            new = torch.where(y.isnan(), drawn.clamp(*self.limits), y)
        new, every = new.reshape(len(new), -1), torch.cat([self.x, x])
        observed = y.reshape(new.shape)
        rows = {id(member.rows): member.rows.with_inputs(every) for member in self.members}
        members = [
            member.with_rows(rows[id(member.rows)], x, observed if member.takes_missing else new)
            for member in self.members
        ]
        self._stack(members, every, torch.cat([self.y, y]), torch.cat([self.targets, new]))
        return self

    @functools.cached_property
    def left_out_log_density(self) -> Tensor:
        """The log densities of the training targets, each by all rows that have other inputs; NaN of missing ones.

        Those of rounded targets are means over what is rounded to them.
        """
        known, groups = ~self.y.reshape(self.targets.shape).isnan(), groups_by_size(equal_rows(self.x))
        resolution = resolutions(torch.where(known, self.targets, torch.nan))
        pairs = zip(self.members, self.tails, strict=True)
        logs = [left_out_scores(one, self.targets, groups, resolution)(tail) for one, tail in pairs]
        return mixed(torch.stack(logs), self.weights, known).reshape(self.y.shape)

    @property
    def limits(self) -> tuple[Tensor, Tensor]:
        """The ranges of the targets, and half of them on both sides: lower and upper ends (T,)."""
        low, high = self.targets.amin(0), self.targets.amax(0)
        return 1.5 * low - 0.5 * high, 1.5 * high - 0.5 * low

    @property
    def support(self) -> tuple[Tensor, Tensor]:
        """The bounds within which all targets are predicted, (T,) each, infinite for none."""
        every = [member.target.logit for member in self.members]
        return torch.stack([logit.low for logit in every]).amin(0), torch.stack([logit.high for logit in every]).amax(0)

    def allows(self, y: Tensor) -> bool:
        """Whether targets (M,) or (M, T) lie within the :attr:`support`; missing values do."""
        low, high = self.support
        values = y.reshape(len(y), -1)
        return not bool(((values < low) | (values > high)).any())

    def _mixture(self, moments: Sequence[Moments], tails: Sequence[Tail]) -> Mixture:
        parts = zip(moments, self.members, tails, strict=True)
        components = [MixtureComponent(found, member.target, tail) for found, member, tail in parts]
        shape = moments[0].mean.shape[1:] if self.has_outputs else moments[0].mean.shape[1:2]
        return Mixture(components, self.weights, *self.limits, tuple(shape))

    @torch.no_grad()
    def predictive(self, x: Tensor) -> Mixture:
        """The distributions of new targets at inputs (M, d), each alone."""
        return self._mixture(predictions(self.members, self._inputs(x)), self.tails)

    def _inputs(self, x: Tensor) -> Tensor:
        """New inputs (M, d), checked, in float64."""
        return checks.finite(checks.inputs(x, self.num_inputs), "x").double().cpu()

    @torch.no_grad()
    def function(self, x: Tensor) -> Mixture:
        """The distributions of the functions without noise at inputs (M, d), each alone."""
        return self._mixture(predictions(self.members, self._inputs(x), has_noise=False), self._normal_tails)

    @property
    def _normal_tails(self) -> list[Tail]:
        return [Tail(torch.full_like(tail.degrees, math.inf)) for tail in self.tails]

    @torch.no_grad()
    def draw_functions(self, num_functions: int, generator: Generator | None = None) -> list[Functions]:
        """Functions drawn from the posterior, in at most eight groups that have parameters of their own.

        :returns: functions of inputs (M, d) with values (M, 1 + S, T): the mean function of a group, and S draws.
        """
        num_functions = checks.positive_integer("num_functions", num_functions)
        generator = checks.generator(generator)
        chosen = enumerate(self._chosen_draws(min(_GROUPS, num_functions), 0.0))
        processes = [self._alone(number, [place]) for number, places in chosen for place in places]
        each = -(-num_functions // len(processes))
        return [process._drawn(each, generator) for process in processes]

    def _drawn(self, num_functions: int, generator: Generator | None) -> Functions:
        """Those of the first member; the mean of a transformed target is not that of its transform."""
        (member, *_), functions = self.members, self.members[0].draw_functions(num_functions, generator)
        if member.target.is_linear:
            return functions

        def values(x: Tensor) -> Tensor:
            found = functions(x)
            found[:, 0] = self.function(x).mean.reshape(len(x), -1)
            return found

        return values

    def _twin(self) -> Self:
        """The same, for other members or rows, whose left-out densities are not known."""
        twin = copy.copy(self)
        vars(twin).pop("left_out_log_density", None)
        return twin

    def _alone(self, number: int, places: Sequence[int]) -> Self:
        """One of the members, with some of the draws of its parameters."""
        twin = self._twin()
        twin.members, twin.tails = [self.members[number].of_draws(places)], [self.tails[number]]
        twin.weights = torch.ones_like(self.weights[:1])
        return twin

    def single_draws(self, count: int) -> list[Self]:
        """Averages of one member and one draw of its parameters, at most so many, that stand for all by equal weight.

        Members with less than half of the weight of such a draw have none.

        >>> x = torch.linspace(0.0, 6.0, 12, dtype=torch.float64).unsqueeze(-1)
        >>> [process.members[0].num_draws for process in AveragedGP(x, x[:, 0].sin()).single_draws(3)]
        [1, 1, 1]
        """
        chosen = enumerate(self._chosen_draws(checks.positive_integer("count", count), 0.5))
        return [self._alone(number, [place]) for number, places in chosen for place in places]

    def thinned(self, count: int) -> Self:
        """The average of these single draws.

        >>> x = torch.linspace(0.0, 6.0, 12, dtype=torch.float64).unsqueeze(-1)
        >>> sum(member.num_draws for member in AveragedGP(x, x[:, 0].sin()).thinned(3).members)
        3
        """
        places, twin = self._chosen_draws(checks.positive_integer("count", count), 0.5), self._twin()
        parts = [self._alone(number, some) for number, some in enumerate(places) if some]
        twin.members, twin.tails = [part.members[0] for part in parts], [part.tails[0] for part in parts]
        weights = torch.tensor([float(len(some)) for some in places if some], dtype=self.weights.dtype)
        twin.weights = (weights / weights.sum()).unsqueeze(-1) * torch.ones_like(self.weights[:1])
        return twin

    def _chosen_draws(self, count: int, least: float) -> list[list[int]]:
        """For each member the draws that stand for all; none for a member of less than the least of their weight."""
        shares = self.weights.mean(1)
        shares = torch.where(shares >= (least / count * shares.sum()).clamp_max(shares.max()), shares, 0.0)
        return _chosen_draws(shares.tolist(), [member.num_draws for member in self.members], count)

    @torch.no_grad()
    def without(self, rows: Tensor) -> Self:
        """An average that has never seen some of the rows: parameters are learned anew, near those that are known.

        Scales, tails and weights of members stay.

        :param rows: the numbers of these rows, (M,).
        :raises ValueError: for numbers of no row, or of all.

        >>> x = torch.linspace(0.0, 6.0, 12, dtype=torch.float64).unsqueeze(-1)
        >>> len(AveragedGP(x, x[:, 0].sin()).without(torch.tensor([0, 5])).y)
        10
        """
        rows, is_kept = checks.integers(rows, "rows"), torch.ones(len(self.y), dtype=torch.bool)
        if bool(((rows < 0) | (rows >= len(is_kept))).any()):
            raise ValueError(f"expected numbers of rows from 0 to {len(is_kept) - 1}, got {rows.tolist()}")
        is_kept[rows.long()] = False
        kept = is_kept.nonzero().flatten()
        if not len(kept):
            raise ValueError(f"expected some of {len(is_kept)} rows, got all of them; keep some")
        twin, inputs = self._twin(), self.x[kept]
        by_rows = {id(member.rows): member.rows.with_inputs(inputs) for member in self.members}
        twin.members = [member.of_some(by_rows[id(member.rows)], kept) for member in self.members]
        twin.x, twin.y, twin.targets = inputs, self.y[kept], self.targets[kept]
        return twin

    def leave_one_out(self, x: Tensor, y: Tensor) -> Mixture:
        """The distributions of the targets that were fitted, each by all other rows; a ValueError for other rows."""
        return self.leave_group_out(x, y, torch.arange(len(self.y)))

    @torch.no_grad()
    def leave_group_out(self, x: Tensor, y: Tensor, groups: Tensor) -> Mixture:
        """The distributions of the targets that were fitted, each by the rows of other groups.

        :param groups: the number of the group of each row, (N,).
        :raises ValueError: for other rows, or another number of groups.
        """
        x, y = _checked(x, y, self)
        several = groups_by_size(groups_of_fitted(groups, (x, y), (self.x, self.y)))
        return self._mixture([member.left_out(several) for member in self.members], self.tails)

    @torch.no_grad()
    def covariance(self, x: Tensor, has_noise: bool = True) -> Tensor:
        """The covariance between rows of new targets at inputs (M, d): (M, M), or (T, M, M) of several targets.

        That of a member with a transformed target has the correlations on its scale, and the variances of the target.

        :param has_noise: whether it is that of targets, or of the functions without noise.
        """
        found, _ = self._covariances(self._inputs(x), checks.flag("has_noise", has_noise))
        return found if self.has_outputs else found[0]

    def _covariances(self, x: Tensor, has_noise: bool = True) -> tuple[Tensor, Mixture]:
        """Those of all targets, (T, M, M), and the distributions of each row."""
        tails, members = self.tails if has_noise else self._normal_tails, self.members
        moments = predictions(members, x, has_noise)
        marginal = self._mixture(moments, tails)
        low, high = self.limits
        center = 0.5 * (low + high)
        means = marginal.mean.reshape(len(x), -1) - center
        joints = [member.joint(x, has_noise) for member in members]
        found = []
        for number in range(means.shape[1]):
            total, columns = x.new_zeros(len(x), len(x)), torch.tensor([number])
            ends = [end[..., columns] for end in (center, *marginal.row_limits)]
            for k, member in enumerate(members):
                share = float(self.weights[k, number]) / member.num_draws
                if not share:
                    continue
                component = MixtureComponent(moments[k], member.target, tails[k]).of(columns)
                for place, joint in enumerate(joints[k](number)):
                    first, second = (part[:, 0] for part in component.of_draw(place).about(*ends))
                    apart, std = first - means[:, number], (second - first.square()).clamp_min(0.0).sqrt()
                    root = std / joint.covariance.diagonal().clamp_min(_SMALLEST).sqrt()
                    total += share * (joint.covariance * torch.outer(root, root) + torch.outer(apart, apart))
            found.append(total)
        return torch.stack(found), marginal

    @torch.no_grad()
    def sample(self, x: Tensor, num_samples: int, generator: Generator | None = None) -> Tensor:
        r"""Draws (S, M) or (S, M, T) of new targets at inputs (M, d), correlated between rows and between targets.

        .. math:: y_t = F_t^{-1}\big(\Phi(L_t u_t)\big)

        They have the distributions F of :meth:`predictive`, by a normal copula: :math:`L_t L_t^\top` are the
        correlations of :meth:`covariance`, and normal values u of several targets have those of their left-out errors.
        """
        x, num_samples = self._inputs(x), checks.positive_integer("num_samples", num_samples)
        shape = num_samples, len(x), self.targets.shape[1]
        normal = self._correlated(torch.randn(shape, generator=checks.generator(generator), dtype=x.dtype), generator)
        covariances, marginal = self._covariances(x)
        for number, matrix in enumerate(covariances):
            std = matrix.diagonal().sqrt()
            normal[..., number] = normal[..., number] @ cholesky(matrix / torch.outer(std, std)).mT
        return QuantileCurves(marginal)(normal if self.has_outputs else normal.squeeze(-1))

    def _correlated(self, normal: Tensor, generator: Generator | None) -> Tensor:
        """Standard normal values (S, M, T) with the correlations of the targets, of which no matrix (T, T) is made."""
        if normal.shape[-1] == 1:
            return normal
        level = self.leave_one_out(self.x, self.y).cdf(self.targets).clamp(_EDGE, 1.0 - _EDGE)
        root, independence = correlation_root(torch.special.ndtri(level))
        common = torch.randn(*normal.shape[:2], len(root), generator=generator, dtype=normal.dtype) @ root
        return (1.0 - independence) ** 0.5 * common + independence**0.5 * normal

    def log_marginal_likelihood(self) -> Tensor:
        """The log density of the targets at the most probable parameters, averaged over the members by weight."""
        logs = torch.tensor([member.log_evidence() for member in self.members], dtype=torch.float64)
        return torch.logsumexp(self.weights.mean(1).log() + logs, 0)


def _checked(x: Tensor, y: Tensor, like: AveragedGP | None = None) -> tuple[Tensor, Tensor]:
    """Rows in float64; a ValueError for others."""
    x = checks.finite(checks.inputs(x, None if like is None else like.num_inputs), "x").double().cpu()
    y = checks.real_tensor(y, "y").double().cpu()
    checks.finite(torch.where(y.isnan(), 0.0, y) if y.dim() == 2 and y.shape[1] > 1 else y, "y")
    is_like = like is None or y.shape[1:] == like.y.shape[1:]
    if y.dim() not in (1, 2) or len(y) != len(x) or not y.numel() or not is_like:
        wanted = f"({len(x)},) or ({len(x)}, T)" if like is None else f"{(len(x), *like.y.shape[1:])}"
        raise ValueError(f"expected y of shape {wanted} for as many rows, got {tuple(y.shape)}; pass targets of each")
    if like is None:
        varies = y.nan_to_num(nan=-torch.inf).amax(0) > y.nan_to_num(nan=torch.inf).amin(0)
        if bool(y.isnan().all(0).any()):
            raise ValueError("expected targets with known values, got one without any; leave it out")
        if not bool(varies.all()):
            raise ValueError("expected targets that vary, got a single value; take a constant")
    return x, y


def _checked_bounds(bounds: tuple[float, float], y: Tensor) -> tuple[Tensor, Tensor]:
    """The bounds of one target, (1,) each; a ValueError for others."""
    if not isinstance(bounds, tuple | list) or len(bounds) != 2 or y.shape != (len(y),):
        raise ValueError(f"expected bounds (low, high) of one target (N,), got {bounds!r} for {tuple(y.shape)}")
    low, high = (checks.number(end) for end in bounds)
    if not math.isfinite(high - low):
        raise ValueError(
            f"expected two finite bounds, got {low:g} and {high:g}; pass logarithms of positive targets, or leave "
            "bounds out"
        )
    if not low <= float(y.min()) <= float(y.max()) <= high:
        raise ValueError(
            f"expected targets within bounds, got {float(y.min()):g} to {float(y.max()):g} for {low:g} to {high:g}; "
            "leave bounds out"
        )
    return y.new_tensor([low]), y.new_tensor([high])


def _chosen_draws(weights: Sequence[float], counts: Sequence[int], most: int) -> list[list[int]]:
    """For each member the draws of its parameters that stand for all with equal weight: at most so many of all."""
    pairs = [(member, place) for member, count in enumerate(counts) for place in range(count)]
    shares = torch.tensor([weights[member] / counts[member] for member, _ in pairs], dtype=torch.float64).cumsum(0)
    count = min(most, len(pairs))
    levels = float(shares[-1]) * (torch.arange(count, dtype=torch.float64) + 0.5) / count
    found: list[list[int]] = [[] for _ in counts]
    for number in torch.searchsorted(shares, levels).clamp_max(len(pairs) - 1).tolist():
        found[pairs[number][0]].append(pairs[number][1])
    return found
