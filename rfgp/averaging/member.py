"""What a member of an average is: processes of several targets, on scales of the inputs and of the targets."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, Self, TypeVar

import scipy
import torch
from torch import Generator, Tensor

from .._support import checks
from .column_scale import ColumnScale

Functions = Callable[[Tensor], Tensor]
"""From inputs (M, d) to values (M, 1 + S, T) in units of the targets: the most probable function and S draws."""


class Moments(NamedTuple):
    """Means and variances (S, M, T) of targets on the scale of a member, for each draw of its parameters."""

    mean: Tensor
    variance: Tensor

    def imputed(self, rows: Tensor, is_marked: Tensor, parts: Sequence[Moments], widths: Tensor) -> Moments:
        r"""The same where some rows are those of M imputations of what is missing, by Rubin's rules.

        .. math:: \bar m = \frac1M \sum_i m_i, \qquad
            v = \frac1M \sum_i v_i + \Big(\frac{t_{M - 1}}{t_\infty}\Big)^2 \Big(1 + \frac1M\Big)
            \frac{1}{M - 1} \sum_i (m_i - \bar m)^2

        Here t are the 97.5 % quantiles of Student's t distributions: so few imputations tell their variance badly, and
        central 95 % intervals are as wide as those of a distribution that knows this. Where an input marks what is
        missing, the model has learned from such rows: the mean stays its own, and so does a variance that is larger.

        :param rows: the numbers of these rows, (G,).
        :param is_marked: whether an input marks what is missing of a row, (G,).
        :param parts: the moments of imputations, (S, G, T) each.
        :param widths: those of the tails, (T,), by which standard deviations are multiplied later: how far imputations
            differ does not depend on them.

        Source: Rubin, Multiple Imputation for Nonresponse in Surveys, 1987, section 3.1.
        """
        means, count, is_marked = torch.stack([part.mean for part in parts]), len(parts), is_marked.unsqueeze(-1)
        within = torch.stack([part.variance for part in parts]).mean(0)
        between = torch.zeros_like(within)
        if count > 1:
            width = float(scipy.special.stdtrit(count - 1, 0.975) / scipy.special.ndtri(0.975))
            between = (width / widths) ** 2 * (1.0 + 1.0 / count) * means.var(0)
        mean = torch.where(is_marked, self.mean[..., rows, :], means.mean(0))
        total = within + between
        variance = torch.where(is_marked, torch.maximum(self.variance[..., rows, :], total), total)
        return Moments(self.mean.index_copy(-2, rows, mean), self.variance.index_copy(-2, rows, variance))


class JointNormal(NamedTuple):
    """Mean (M,) and covariance (M, M) of one target on the scale of a member."""

    mean: Tensor
    covariance: Tensor


class MemberRows(abc.ABC):
    """Training inputs on a scale and what is computed of them once, for all members that have that scale."""

    x: Tensor

    @abc.abstractmethod
    def with_inputs(self, x: Tensor) -> Self:
        """The same of other inputs (N, d)."""


MemberRowsT = TypeVar("MemberRowsT", bound=MemberRows)
MemberT = TypeVar("MemberT", bound="Member[Any]")


class Member(abc.ABC, Generic[MemberRowsT]):
    """Gaussian processes of T targets.

    :ivar rows: the training inputs.
    :ivar target: the scale of the targets.
    :ivar num_draws: how many draws S of the parameters there are.
    :ivar takes_missing: whether targets can be missing; others have draws of them.
    :ivar optimism: the nats by which rows that are left out are too probable, as inputs were learned from them.
    """

    rows: MemberRowsT
    target: ColumnScale
    num_draws: int
    takes_missing: bool = False
    optimism: float = 0.0

    @abc.abstractmethod
    def left_out(self, groups: Sequence[Tensor] = ()) -> Moments:
        """Every training target by all others; those of rows in a group by rows outside of it.

        :param groups: the numbers of rows of groups of one size in each tensor, (G, size); other rows are alone.
        """

    @classmethod
    @abc.abstractmethod
    def predict_all(cls, members: Sequence[Self], x: Tensor, has_noise: bool = True) -> list[Moments]:
        """What members of this class predict at inputs (M, d): what they have in common is computed once.

        :param has_noise: whether it is new targets, or the functions there.
        """

    def predict(self, x: Tensor, has_noise: bool = True) -> Moments:
        """New targets at inputs (M, d), or the functions there."""
        return self.predict_all([self], x, has_noise)[0]

    @abc.abstractmethod
    def joint(self, x: Tensor, has_noise: bool = True) -> Callable[[int], Iterable[JointNormal]]:
        """Of one of the targets, by its number: the distribution at inputs (M, d) for each draw of the parameters."""

    @abc.abstractmethod
    def draw_functions(self, num_functions: int, generator: Generator | None) -> Functions:
        """Functions drawn from the posterior, for the first draw of the parameters."""

    @abc.abstractmethod
    def of_draws(self, places: Sequence[int]) -> Self:
        """The same with some of the draws of the parameters."""

    @abc.abstractmethod
    def log_evidence(self) -> float:
        """The log density of the targets, in their units, at the most probable parameters."""

    @abc.abstractmethod
    def with_targets(self, y: Tensor) -> Self:
        """The same scales and parameters with other targets (N, T) of the same rows."""

    @abc.abstractmethod
    def with_rows(self, rows: MemberRowsT, x: Tensor, y: Tensor) -> Self:
        """The same scales and draws with more rows.

        :param rows: all inputs, those that were there first.
        :param x: the new inputs (M, d).
        :param y: their targets (M, T), with NaN for missing ones if the member takes them.
        """

    @abc.abstractmethod
    def of_some(self, rows: MemberRowsT, kept: Tensor) -> Self:
        """The same scales with some of the rows, from which the parameters are learned anew.

        :param rows: the inputs that are kept.
        :param kept: the numbers (M,) of these rows.
        """


def predictions(members: Sequence[Member[Any]], x: Tensor, has_noise: bool = True) -> list[Moments]:
    """What members of several classes predict, see :meth:`Member.predict_all`."""
    found: dict[int, Moments] = {}
    for kind in {type(member): None for member in members}:
        alike = [member for member in members if type(member) is kind]
        found.update(zip(map(id, alike), kind.predict_all(alike, x, has_noise), strict=True))
    return [found[id(member)] for member in members]


def by_rows(members: Sequence[MemberT]) -> list[list[MemberT]]:
    """Members in groups of the same training rows."""
    groups: dict[int, list[MemberT]] = {}
    for member in members:
        groups.setdefault(id(member.rows), []).append(member)
    return [*groups.values()]


def group_left_out(
    y: Tensor, alpha: Tensor, diagonal: Tensor, block: Callable[[Tensor], Tensor], groups: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    r"""Means (N, T) and variances (N,) of rows left out, by the inverse A of their covariance.

    .. math:: \mu_G = y_G - (A_{GG})^{-1} \alpha_G, \qquad \Sigma_G = (A_{GG})^{-1}

    :param y: targets (N, T).
    :param alpha: A y, (N, T).
    :param diagonal: that of A, (N,).
    :param block: the blocks (G, size, size) of A of groups of rows, by their numbers (G, size).
    :param groups: as in :meth:`Member.left_out`.
    """
    variance = 1.0 / diagonal
    mean = y - alpha * variance.unsqueeze(-1)
    for rows in groups:
        blocks = torch.linalg.inv(block(rows))
        mean[rows] = y[rows] - blocks @ alpha[rows]
        variance[rows] = blocks.diagonal(dim1=-2, dim2=-1)
    return mean, variance


def equal_rows(x: Tensor) -> Tensor:
    """Numbers (N,) that are equal for equal inputs (N, d)."""
    numbers: Tensor = x.unique(dim=0, return_inverse=True)[1]
    return numbers


def groups_of_fitted(groups: Tensor, rows: tuple[Tensor, Tensor], fitted: tuple[Tensor, Tensor]) -> Tensor:
    """The numbers (N,) of the groups of rows, inputs and targets, or a ValueError for others than those fitted."""
    pairs = zip(rows, fitted, strict=True)
    if not all(a.shape == b.shape and torch.allclose(a, b, 0.0, 0.0, equal_nan=True) for a, b in pairs):
        raise ValueError("expected the rows that were fitted, got others; pass those, in the same order")
    count = len(fitted[1])
    if checks.tensor(groups, "groups").shape != (count,):
        raise ValueError(
            f"expected a group for each of {count} rows, got {tuple(groups.shape)}; number the groups of all"
        )
    return groups


def groups_by_size(numbers: Tensor) -> list[Tensor]:
    """For the number of the group of each row (N,), the rows of all groups of several: one tensor (G, size) a size.

    >>> groups_by_size(torch.tensor([0, 1, 0, 2, 1]))
    [tensor([[0, 2],
            [1, 4]])]
    """
    _, numbers, counts = numbers.unique(return_inverse=True, return_counts=True)
    order, size_of_row = numbers.argsort(stable=True), counts[numbers]
    sizes = [int(size) for size in counts.unique() if size > 1]
    return [order[size_of_row[order] == size].reshape(-1, size) for size in sizes]
