"""The members of an average for one target: lengthscales for all inputs, on four scales."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .bank_member import BankMember, LearnsBaseline
from .column_scale import ColumnScale
from .input_scale import InputScale, Kind
from .kernel_bank import SHAPES, KernelBank
from .learned_map import learned_map
from .member import Member, groups_by_size
from .stacking import stacked
from .table_member import SmoothMember, TableMember, TableRows


class Form(NamedTuple):
    """What inputs become, whether the target is transformed, and whether the kernel is that of smooth functions."""

    inputs: Kind
    is_transformed: bool = False
    is_smooth: bool = False


_FORMS = [Form("values"), Form("half ranks"), Form("values", True), Form("half ranks", True)]
_MAPPED = [Form("map"), Form("map", True)]
_ROWS_PER_WEIGHT = 10
"""Of fewer rows for every weight of a map it follows noise."""
_SMOOTH, _MOST_NOISE = [Form("values", False, True), Form("values", True, True)], 0.05
"""Noise of a larger share of the variance hides whether a function is smooth."""
CHOOSING, CHOSEN_BY = 400, 300
"""From how many rows on members are chosen first, and by how many rows."""
_DRAWS, _PROPOSALS, _FEWEST_DRAWS, _FEWEST_PROPOSALS = 24, 100, 8, 32
_LEARNING = 1000
"""Parameters are learned from so many rows."""
_WORK_OF_SMOOTH = 8, 48, 400
"""The most draws, proposals and rows of smooth members, whose parameters are many, and told by few rows."""
_SHARE, _MOST_SHAPES = 0.25, 3


def members_of_one(x: Tensor, y: Tensor, groups: Tensor, learns_baseline: LearnsBaseline | None) -> list[Member[Any]]:
    """Members for inputs (N, d) and a target (N, 1).

    Of more than 400 rows, 300 choose the forms: those with at least a quarter of the weight, and half of the largest.
    Parameters are learned from at most 1,000 rows; of more, the most probable ones stand for all.

    :param groups: numbers (N,) of rows that are left out together.
    :param learns_baseline: what learns a baseline for the transformed target.
    """
    draws, proposals = draws_and_proposals(len(x), _DRAWS, _PROPOSALS, _FEWEST_DRAWS)
    if len(x) <= CHOOSING:
        tables = _every(x, y, torch.arange(len(x)), draws, proposals)
    else:
        rows = chosen_rows(len(x))
        few = _every(x, y, rows, 8, 48)
        shares = stacked([*few.values()], y[rows], ~y[rows].isnan(), groups_by_size(groups[rows])).shares
        forms = _taken(dict(zip(few, shares, strict=True)))
        tables = _learned(x, y, forms, draws, proposals, few)
    return [*tables.values()] + ([] if learns_baseline is None else [_with_baseline(x, y, learns_baseline)])


def _taken(shares: dict[Form, float]) -> list[Form]:
    """Members of few rows that are learned from all: those of large weight, and the best of many alike.

    One of them is rough and has no map: few rows do not tell whether a function is smooth.
    """
    best = max(shares.values())
    found = [form for form, share in shares.items() if share >= min(best, max(_SHARE, 0.5 * best))]
    return found if set(found) & set(_FORMS) else [*found, max(_FORMS, key=shares.__getitem__)]


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
    """How many draws of the parameters, and of how many proposals: the work of 300 rows, or least numbers.

    More than 1,000 rows have none: the most probable parameters predict as well in half of the time.
    """
    if num_rows > _LEARNING:
        return 0, 0
    work = min(1.0, (CHOSEN_BY / num_rows) ** 2)
    return max(fewest_draws, int(draws * work**0.5)), max(_FEWEST_PROPOSALS, int(proposals * work))


def _every(x: Tensor, y: Tensor, rows: Tensor, draws: int, proposals: int) -> dict[Form, TableMember]:
    """Members of all forms, with some of the rows.

    Smooth ones where there are lengthscales of all inputs, and little noise; those of a map, which is learned from all
    rows, where these are many for its weights.
    """
    found = _learned(x[rows], y[rows], _FORMS, draws, proposals, {})
    first = found[_FORMS[0]]
    dim = first.rows.x.shape[1]
    if first.has_lengthscales and dim and first.modes[0][-1] <= math.log(_MOST_NOISE):
        found |= _learned(x[rows], y[rows], _SMOOTH, draws, proposals, {})
    if dim > 1 and len(x) >= _ROWS_PER_WEIGHT * dim**2:
        mapped = _mapped(x, y, first)
        found |= _learned(x[rows], y[rows], _MAPPED, draws, proposals, {}, mapped)
    return found


def _mapped(x: Tensor, y: Tensor, member: TableMember) -> InputScale:
    """The inputs of a member of some of the rows, by a linear map that is learned from all."""
    (kernel,), (vector,), scale = member.kernels, member.modes, member.rows.scale
    start = kernel.inverse_lengths(vector), kernel.scale(vector), kernel.noise(vector)
    return scale.mapped(learned_map(scale(x), member.target.forward(y).squeeze(-1), *start), x)


def _learned(
    x: Tensor,
    y: Tensor,
    forms: Sequence[Form],
    draws: int,
    proposals: int,
    few: dict[Form, TableMember],
    mapped: InputScale | None = None,
) -> dict[Form, TableMember]:
    """Members by form; the search begins at that of few rows, or at that of the same inputs.

    :param mapped: the inputs after a map; default: those of few rows.
    """
    near, found = dict(few), {}

    def scale(form: Form) -> InputScale:
        if form.inputs == "map":
            return few[form].rows.scale if mapped is None else mapped
        return InputScale(x, form.inputs)

    rows = {form.inputs: TableRows(scale(form), x) for form in {form.inputs: form for form in forms}.values()}
    targets = {is_transformed: ColumnScale(y, is_transformed) for is_transformed in (False, True)}
    for form in forms:
        kind, work = (SmoothMember, _WORK_OF_SMOOTH) if form.is_smooth else (TableMember, (draws, proposals, _LEARNING))
        found[form] = member = kind(rows[form.inputs], targets[form.is_transformed], y)
        most_draws, most_proposals, most_rows = work
        limits = min(draws, most_draws), min(proposals, most_proposals)
        member.learn(*limits, near.get(form), chosen_rows(len(x), most_rows))
        near.setdefault(form._replace(is_transformed=True), member)
    return found
