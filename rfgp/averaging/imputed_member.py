"""Members for several draws of missing targets, as one member."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from .member import Functions, JointNormal, Member, MemberRows, Moments, predictions


class ImputedMember(Member[MemberRows]):
    r"""The equal mixture of what a member predicts by different draws of missing targets.

    .. math:: p(y | x) = \frac1J \sum_j p(y | x, Y_j)

    :param members: the same member with the targets of each draw.

    Source: Rubin (1987), multiple imputation.
    """

    def __init__(self, members: Sequence[Member[Any]]) -> None:
        self.members = list(members)
        self.rows, self.target = self.members[0].rows, self.members[0].target
        self.num_draws = len(self.members) * self.members[0].num_draws

    def _joined(self, parts: Sequence[Moments]) -> Moments:
        return Moments(*(torch.cat(part) for part in zip(*parts, strict=True)))

    def left_out(self, groups: Sequence[Tensor] = ()) -> Moments:
        return self._joined([member.left_out(groups) for member in self.members])

    @classmethod
    def predict_all(cls, members: Sequence[ImputedMember], x: Tensor, has_noise: bool = True) -> list[Moments]:
        found = iter(predictions([part for member in members for part in member.members], x, has_noise))
        return [member._joined([next(found) for _ in member.members]) for member in members]

    def joint(self, x: Tensor, has_noise: bool = True) -> Callable[[int], Iterator[JointNormal]]:
        parts = [member.joint(x, has_noise) for member in self.members]
        return lambda number: (found for of_target in parts for found in of_target(number))

    def draw_functions(self, num_functions: int, generator: Generator | None) -> Functions:
        return self.members[0].draw_functions(num_functions, generator)

    def of_draws(self, places: Sequence[int]) -> ImputedMember:
        pairs = [divmod(place, self.members[0].num_draws) for place in places]
        return ImputedMember([self.members[number].of_draws([place]) for number, place in pairs])

    def log_evidence(self) -> float:
        return sum(member.log_evidence() for member in self.members) / len(self.members)

    def with_targets(self, y: Tensor) -> ImputedMember:
        return ImputedMember([member.with_targets(y) for member in self.members])

    def with_rows(self, rows: MemberRows, x: Tensor, y: Tensor) -> ImputedMember:
        return ImputedMember([member.with_rows(rows, x, y) for member in self.members])

    def of_some(self, rows: MemberRows, kept: Tensor) -> ImputedMember:
        return ImputedMember([member.of_some(rows, kept) for member in self.members])
