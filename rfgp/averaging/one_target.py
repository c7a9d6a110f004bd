"""The members of an average for one target: lengthscales for all inputs, on four scales."""

from __future__ import annotations

import math
import statistics
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
_DRAWS, _PROPOSALS, _LEAST_DRAWS, _LEAST_PROPOSALS = 24, 64, 8, 24
"""How many all members have together, each as many as its weight, and how many one has at the least."""
_CHOOSING_DRAWS = 8, 48
"""How many draws and proposals members of some of the rows have, by which they are chosen."""
_TOLERANCE = 1e-5
"""To such a part of the log density parameters are found of which draws follow."""
_LEARNING, _LEARNING_SMOOTH = 1000, 400
"""Parameters are learned from so many rows; those of smooth members are many, and told by few."""
_SHARE, _SHARE_OF_FEW_ROWS = 0.25, 0.1
"""The least weights of members that are kept."""
_MOST_SHAPES, _SHAPES_BY = 3, 150
"""Of more rows so many choose so many shapes of the kernel of what a baseline leaves over."""


Bounds = tuple[Tensor, Tensor]
"""The lower and the upper bound of a target, (1,) each."""


def members_of_one(
    x: Tensor, y: Tensor, groups: Tensor, learns_baseline: LearnsBaseline | None, bounds: Bounds | None = None
) -> list[Member[Any]]:
    """Members for inputs (N, d) and a target (N, 1).

    Left-out densities choose the forms. Of up to 400 rows, the most probable parameters choose those with at least a
    tenth of the weight, whose parameters are drawn, in number as the weight. Of more rows, 300 choose those with a
    quarter of it, and half of the largest; the most probable parameters of at most 1,000 rows stand for all draws, as
    they predict as well in half of the time.

    :param groups: numbers (N,) of rows that are left out together.
    :param learns_baseline: what learns a baseline for the transformed target.
    :param bounds: those of the target: transformed, it is a logit, which all members have where half of the weight is
        that of members that have it.
    """
    if len(x) <= CHOOSING:
        every = _every(x, y, bounds)
        shares = _shares(every, y, groups)
        if bounds is not None:
            shares, bounds = _of_bounds(shares, bounds)
        members = {form: every[form] for form in _of_weight(shares, _SHARE_OF_FEW_ROWS)}
        _draw(members, shares)
    else:
        rows = chosen_rows(len(x))
        few = _of_some(x, y, rows, bounds)
        shares = _shares(few, y[rows], groups[rows])
        if bounds is not None:
            shares, bounds = _of_bounds(shares, bounds)
        members = _of_all(x, y, {form: few[form] for form in _taken(shares)}, bounds)
    return [*members.values()] + ([] if learns_baseline is None else [_with_baseline(x, y, learns_baseline, bounds)])


def _of_bounds(shares: dict[Form, float], bounds: Bounds) -> tuple[dict[Form, float], Bounds | None]:
    """The weights of members within bounds and these, or those of members without bounds where they have most."""
    inside = sum(share for form, share in shares.items() if form.is_transformed)
    is_inside = inside >= 0.5 * sum(shares.values())
    kept = {form: share for form, share in shares.items() if form.is_transformed == is_inside}
    return kept, bounds if is_inside else None


def _shares(members: dict[Form, TableMember], y: Tensor, groups: Tensor) -> dict[Form, float]:
    """The weights of members by the left-out densities of targets (N, 1)."""
    found = stacked([*members.values()], y, ~y.isnan(), groups_by_size(groups)).shares
    return dict(zip(members, found, strict=True))


def _of_weight(shares: dict[Form, float], least: float) -> list[Form]:
    """Those of at least some share, or the best."""
    return [form for form, share in shares.items() if share >= min(least, max(shares.values()))]


def _taken(shares: dict[Form, float]) -> list[Form]:
    """Members of few rows that are learned from all: those of large weight, and the best of many alike.

    One of them is rough and has no map: few rows do not tell whether a function is smooth.
    """
    found = _of_weight(shares, max(_SHARE, 0.5 * max(shares.values())))
    rough = [form for form in _FORMS if form in shares]
    return found if set(found) & set(rough) else [*found, max(rough, key=shares.__getitem__)]


def _draw(members: dict[Form, TableMember], shares: dict[Form, float]) -> None:
    """Draw parameters of members, in number as their shares."""
    total = sum(shares[form] for form in members)
    for form, member in members.items():
        draws, proposals = (math.ceil(shares[form] / total * number) for number in (_DRAWS, _PROPOSALS))
        member.draw(max(draws, _LEAST_DRAWS), max(proposals, _LEAST_PROPOSALS))


def _with_baseline(x: Tensor, y: Tensor, learns_baseline: LearnsBaseline, bounds: Bounds | None) -> BankMember:
    """A member for what a baseline leaves over; of more than 150 rows, these choose its kernels."""
    target, scale, shapes = ColumnScale(y, is_transformed=True, bounds=bounds), InputScale(x, "values"), [*SHAPES]
    baseline = learns_baseline(x, target.forward(y))
    if len(x) > _SHAPES_BY:
        rows = chosen_rows(len(x), _SHAPES_BY)
        bank = KernelBank(scale, x[rows], SHAPES)
        few = BankMember(bank, target, y[rows], baseline=baseline, base=baseline.left_out[rows])
        shapes = [SHAPES[shape] for shape in few.mass.topk(_MOST_SHAPES).indices.tolist()]
    return BankMember(KernelBank(scale, x, shapes), target, y, baseline=baseline, base=baseline.left_out)


def chosen_rows(num_rows: int, most: int = CHOSEN_BY) -> Tensor:
    """Numbers of rows that stand for all, the same in every fit: 300 choose members."""
    return torch.randperm(num_rows, generator=torch.Generator().manual_seed(0))[:most]


class _Table:
    """Rows (N, d) with targets (N, 1), and what members of them have in common."""

    def __init__(self, x: Tensor, y: Tensor, bounds: Bounds | None) -> None:
        self.x, self.y = x, y
        self.targets = {is_transformed: ColumnScale(y, is_transformed, bounds) for is_transformed in (False, True)}
        self.rows: dict[Kind, TableRows] = {}

    def member(self, form: Form, mapped: InputScale | None = None) -> TableMember:
        """A member that has learned nothing; that of a map has its inputs."""
        if form.inputs not in self.rows:
            scale = InputScale(self.x, form.inputs) if mapped is None else mapped
            self.rows[form.inputs] = TableRows(scale, self.x)
        kind = SmoothMember if form.is_smooth else TableMember
        return kind(self.rows[form.inputs], self.targets[form.is_transformed], self.y)


def _every(x: Tensor, y: Tensor, bounds: Bounds | None) -> dict[Form, TableMember]:
    """Members of all forms, with the most probable parameters.

    The search begins at those of standardized inputs and the target as it is, or at those of half ranks. That of a map
    has the target on the scale on which it is more probable. There are smooth ones of both scales: few runs of long
    tails do not tell which is right, and with one of them intervals cover 2 to 4 % fewer of the new runs.
    """
    table, found = _Table(x, y, bounds), dict[Form, TableMember]()

    def learn(form: Form, near: TableMember | None, mapped: InputScale | None = None) -> TableMember:
        found[form] = member = table.member(form, mapped)
        member.learn(near, tolerance=_TOLERANCE)
        return member

    first = learn(_FORMS[0], None)
    for form in _FORMS[1:]:
        learn(form, found.get(form._replace(is_transformed=False), first))
    is_transformed = found[Form("values", True)].log_evidence() > first.log_evidence()
    for form in _SMOOTH if may_be_smooth(first) else ():
        learn(form, None)
    if _may_be_mapped(first, x):
        learn(Form("map", is_transformed), first, _mapped(x, y, first))
    return found


def _of_some(x: Tensor, y: Tensor, rows: Tensor, bounds: Bounds | None) -> dict[Form, TableMember]:
    """Members of all forms with some of the rows, and draws of their parameters; a map is learned from all rows.

    The search begins at the parameters for the target as it is.
    """
    table, found = _Table(x[rows], y[rows], bounds), dict[Form, TableMember]()

    def learn(form: Form, mapped: InputScale | None = None) -> TableMember:
        member = table.member(form, mapped)
        member.learn(found.get(form._replace(is_transformed=False)))
        member.draw(*_CHOOSING_DRAWS)
        found[form] = member
        return member

    first, *_ = [learn(form) for form in _FORMS]
    for form in _SMOOTH if may_be_smooth(first) else ():
        learn(form)
    if _may_be_mapped(first, x):
        mapped = _mapped(x, y, first)
        for form in _MAPPED:
            learn(form, mapped)
    return found


def may_be_smooth(first: TableMember) -> bool:
    """Whether there are lengthscales of all inputs, and little noise of most targets."""
    noise = statistics.median(float(mode[-1]) for mode in first.modes)
    return bool(first.has_lengthscales and first.rows.x.shape[1] and noise <= math.log(_MOST_NOISE))


def _may_be_mapped(first: TableMember, x: Tensor) -> bool:
    """Whether rows are many for the weights of a map."""
    dim = first.rows.x.shape[1]
    return dim > 1 and len(x) >= _ROWS_PER_WEIGHT * dim**2


def _mapped(x: Tensor, y: Tensor, member: TableMember) -> InputScale:
    """The inputs of a member of some of the rows, by a linear map that is learned from all."""
    (kernel,), (vector,), scale = member.kernels, member.modes, member.rows.scale
    start = kernel.inverse_lengths(vector), kernel.scale(vector), kernel.noise(vector)
    return scale.mapped(learned_map(scale(x), member.target.forward(y).squeeze(-1), *start), x)


def _of_all(x: Tensor, y: Tensor, few: dict[Form, TableMember], bounds: Bounds | None) -> dict[Form, TableMember]:
    """Members of few rows with all rows, from which they are learned; the search begins at the parameters of few."""
    table, found = _Table(x, y, bounds), {}
    for form, near in few.items():
        found[form] = table.member(form, near.rows.scale if form.inputs == "map" else None)
        found[form].learn(near, chosen_rows(len(x), _LEARNING_SMOOTH if form.is_smooth else _LEARNING))
    return found
