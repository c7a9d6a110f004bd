"""The members of an average for one target: lengthscales for all inputs, on four scales."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .bank_member import BankMember, LearnsBaseline
from .column_scale import ColumnScale
from .input_scale import InputScale, Kind
from .kernel_bank import SHAPES, KernelBank
from .member import Member, groups_by_size
from .stacking import stacked
from .table_member import TableMember, TableRows

Scale = tuple[Kind, bool]
_SCALES: tuple[Scale, ...] = (("values", False), ("half ranks", False), ("values", True), ("half ranks", True))
"""What inputs become, and whether the target is transformed."""
CHOOSING, CHOSEN_BY = 400, 300
"""From how many rows on members are chosen first, and by how many rows."""
_DRAWS, _PROPOSALS, _FEWEST_DRAWS, _FEWEST_PROPOSALS = 24, 200, 8, 32
_LEARNING = 1000
"""Parameters are learned from so many rows."""
_SHARE, _MOST_SHAPES = 0.25, 3


def members_of_one(x: Tensor, y: Tensor, groups: Tensor, learns_baseline: LearnsBaseline | None) -> list[Member[Any]]:
    """Members for inputs (N, d) and a target (N, 1).

    Of more than 400 rows, 300 choose the scales: those with at least a quarter of the weight, or half of the largest.
    Parameters are learned from at most 1,000.

    :param groups: numbers (N,) of rows that are left out together.
    :param learns_baseline: what learns a baseline for the transformed target.
    """
    scales, few = list(_SCALES), dict[Scale, TableMember]()
    if len(x) > CHOOSING:
        rows = chosen_rows(len(x))
        few = _learned(x[rows], y[rows], scales, 8, 48, few)
        shares = stacked([*few.values()], y[rows], ~y[rows].isnan(), groups_by_size(groups[rows])).shares
        least = max(_SHARE, 0.5 * max(shares))
        scales = [scale for scale, share in zip(scales, shares, strict=True) if share >= least]
    draws, proposals = draws_and_proposals(len(x), _DRAWS, _PROPOSALS, _FEWEST_DRAWS)
    tables = [*_learned(x, y, scales, draws, proposals, few).values()]
    return [*tables] if learns_baseline is None else [*tables, _with_baseline(x, y, learns_baseline)]


def _with_baseline(x: Tensor, y: Tensor, learns_baseline: LearnsBaseline) -> BankMember:
    """A member for what a baseline leaves over; of more than 400 rows, 300 choose its kernels."""
    target, scale, shapes = ColumnScale(y, is_transformed=True), InputScale(x, "values"), [*SHAPES]
    baseline = learns_baseline(x, target.forward(y))
    if len(x) > CHOOSING:
        rows = chosen_rows(len(x))
        bank = KernelBank(scale, x[rows], SHAPES)
        few = BankMember(bank, target, y[rows], baseline=baseline, base=baseline.left_out[rows])
        shapes = [SHAPES[shape] for shape in few.mass.topk(_MOST_SHAPES).indices.tolist()]
    return BankMember(KernelBank(scale, x, shapes), target, y, baseline=baseline, base=baseline.left_out)


def chosen_rows(num_rows: int, most: int = CHOSEN_BY) -> Tensor:
    """Numbers of rows that stand for all, the same in every fit: 300 choose members."""
    return torch.randperm(num_rows, generator=torch.Generator().manual_seed(0))[:most]


def draws_and_proposals(num_rows: int, draws: int, proposals: int, fewest_draws: int) -> tuple[int, int]:
    """How many draws of the parameters, and of how many proposals: the work of 300 rows, or least numbers."""
    work = min(1.0, (CHOSEN_BY / num_rows) ** 2)
    return max(fewest_draws, int(draws * work**0.5)), max(_FEWEST_PROPOSALS, int(proposals * work))


def _learned(
    x: Tensor, y: Tensor, scales: list[Scale], draws: int, proposals: int, few: dict[Scale, TableMember]
) -> dict[Scale, TableMember]:
    """Members by scale; the search begins at that of few rows, or at that of the same inputs."""
    near, members = dict(few), {}
    rows = {kind: TableRows(InputScale(x, kind), x) for kind in dict(scales)}
    targets = {is_transformed: ColumnScale(y, is_transformed) for is_transformed in (False, True)}
    for kind, is_transformed in scales:
        member = TableMember(rows[kind], targets[is_transformed], y)
        member.learn(draws, proposals, near.get((kind, is_transformed)), chosen_rows(len(x), _LEARNING))
        near.setdefault((kind, True), member)
        members[kind, is_transformed] = member
    return members
