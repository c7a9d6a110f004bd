"""The members of an average for several targets: banks of kernels that all targets share."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .bank_member import BankMember, Baseline, LearnsBaseline
from .column_scale import ColumnScale
from .imputed_member import ImputedMember
from .input_scale import InputScale, Kind
from .kernel_bank import SHAPES, KernelBank, Shape
from .member import Member, groups_by_size
from .one_target import CHOOSING, CHOSEN_BY, chosen_rows, may_be_smooth
from .stacking import stacked
from .table_kernel import has_lengthscales
from .table_member import SmoothMember, TableMember, TableRows

_KINDS: tuple[Kind, ...] = ("values", "half ranks", "powers")
_MOST_SHAPES, _MOST_MEMBERS, _CHOOSING_TARGETS = 8, 8, 100
"""Of more than 400 rows so many shapes and scales of the inputs are kept, and of many targets so many members. So many
targets choose them."""
_DRAWS, _PROPOSALS, _FEWEST_DRAWS, _FEWEST_PROPOSALS = 16, 100, 8, 32
"""How many there are of up to 300 rows, and of many."""
_MOST_WORK, _WORK_OF_DRAWS, _WORK_OF_SMOOTH, _MOST_TARGETS = 3e9, 5e8, 2e8, 16
"""Lengthscales of all inputs are learned, and drawn from their posterior, up to so many targets times cubed rows, and
those of smooth functions from rows that are no more."""


def members_of_several(
    x: Tensor, draws: Sequence[Tensor], known: Tensor, groups: Tensor, learns_baseline: LearnsBaseline | None
) -> list[Member[Any]]:
    """Members for inputs (N, d) and targets (N, T), or draws of those that are missing.

    Of more than 400 rows, 300 choose members and the shapes of their kernels, by 100 targets at most. Where rows and
    targets are few, targets have lengthscales of all inputs too, on the scales that have most of the weight, and where
    they have little noise, the kernel of smooth functions. Draws of missing values hide which targets are to be
    transformed: where some are missing, there are members of both.

    :param draws: the targets, with other draws of what is missing in each.
    :param known: which targets are known, and count in left-out densities, (N, T).
    :param groups: numbers (N,) of rows that are left out together.
    :param learns_baseline: what learns a baseline for transformed targets.
    """
    y, observed = draws[0], torch.where(known, draws[0], torch.nan)
    transforms = {is_transformed: ColumnScale(observed, is_transformed) for is_transformed in (False, True)}
    baseline = None if learns_baseline is None else learns_baseline(x, transforms[True].forward(y))
    targets = _Targets(y, transforms, baseline, None if baseline is None else baseline.left_out)
    scales, ways = {kind: InputScale(x, kind) for kind in _KINDS}, _ways(baseline is not None)
    shapes = {kind: [*SHAPES] for kind in _KINDS}
    if len(x) > CHOOSING:
        rows, columns = chosen_rows(len(x)), torch.arange(0, y.shape[1], -(-y.shape[1] // _CHOOSING_TARGETS))
        banks = {kind: KernelBank(scale, x[rows], SHAPES) for kind, scale in scales.items()}
        some = targets.some(rows, columns)
        few = [some.member(way, banks) for way in ways]
        of_ways = stacked(few, some.y, known[rows][:, columns], groups_by_size(groups[rows])).shares
        shapes = _best_shapes(few, of_ways, banks)
        order = sorted(range(len(ways)), key=lambda k: -of_ways[k])
        most = len(ways) if y.shape[1] <= _MOST_TARGETS else _MOST_MEMBERS
        best = [k for k in order if shapes[ways[k].kind]][:most]
        ways = [ways[k] for k in best]
    banks = {kind: KernelBank(scales[kind], x, shapes[kind]) for kind in {way.kind: None for way in ways}}
    of_banks = [targets.member(way, banks) for way in ways]
    with_lengthscales: list[TableMember] = []
    if len(scales["values"].kept) > 1 and has_time_for_lengthscales(*y.shape):
        shares = stacked(of_banks, y, known, groups_by_size(groups)).shares
        plain = [k for k, way in enumerate(ways) if not way.rotates and not way.has_baseline] or [*range(len(ways))]
        likely = ways[max(plain, key=shares.__getitem__)]
        rows_of_table = TableRows(scales[likely.kind], x)
        if has_lengthscales(rows_of_table.x.shape[1], len(x)):
            its_scales = [transforms[likely.is_transformed]] if len(draws) == 1 else [*transforms.values()]
            with_lengthscales = _with_lengthscales(x, observed, rows_of_table, its_scales, scales["values"])
    if len(draws) > 1:
        of_draws = [[member, *(member.with_targets(draw) for draw in draws[1:])] for member in of_banks]
        return [*map(ImputedMember, of_draws), *with_lengthscales]
    return [*of_banks, *with_lengthscales]


def _with_lengthscales(
    x: Tensor, y: Tensor, rows: TableRows, targets: Sequence[ColumnScale], plain: InputScale
) -> list[TableMember]:
    """Members with lengthscales of all inputs, for several scales of the targets (N, T).

    Every target has the rows where it is known. Of more than 400 rows, 300 say where the search begins, and the search
    on a second scale begins at the parameters of the first. Where most targets have little noise, the last one has the
    kernel of smooth functions.

    :param plain: the scale of inputs of smooth functions.
    """
    near, found = None, list[TableMember]()
    if len(x) > CHOOSING:
        some = chosen_rows(len(x))
        near = TableMember(TableRows(rows.scale, x[some]), targets[0], y[some])
        near.learn()
        near.draw(1, 1)
    for target in targets:
        member = TableMember(rows, target, y)
        member.learn(near)
        near = copy.copy(member)
        found.append(member)
    if may_be_smooth(found[0]):
        likely = max(found, key=TableMember.log_evidence).target
        smooth = SmoothMember(rows if plain is rows.scale else TableRows(plain, x), likely, y)
        smooth.learn(some=chosen_rows(len(x), int((_WORK_OF_SMOOTH / y.shape[1]) ** (1 / 3))))
        found.append(smooth)
    if _work(*y.shape) <= _WORK_OF_DRAWS:
        share = min(1.0, (CHOSEN_BY / len(x)) ** 2)
        draws, proposals = int(_DRAWS * share**0.5), int(_PROPOSALS * share)
        for member in found:
            member.draw(max(_FEWEST_DRAWS, draws), max(_FEWEST_PROPOSALS, proposals))
    return found


def has_time_for_lengthscales(num_rows: int, num_targets: int) -> bool:
    """Whether rows and targets are few enough for lengthscales of all inputs."""
    return num_targets <= _MOST_TARGETS and _work(num_rows, num_targets) <= _MOST_WORK


def _work(num_rows: int, num_targets: int) -> float:
    return num_targets * float(num_rows) ** 3


class _Way(NamedTuple):
    """What inputs and targets become, and whether processes are those of what a baseline leaves over."""

    kind: Kind
    rotates: bool
    is_transformed: bool
    has_baseline: bool


def _ways(has_baseline: bool) -> list[_Way]:
    """On every scale of the inputs: targets and their principal components, and what a baseline leaves over."""
    of_targets = [(False, False), (True, False), *([(True, True)] if has_baseline else [])]
    return [_Way(kind, rotates, *of) for kind in _KINDS for rotates in (False, True) for of in of_targets]


class _Targets(NamedTuple):
    """Targets (N, T), their transforms, and what a baseline says of them.

    :param base: predictions of these targets by the baseline, learned from others, (N, T).
    """

    y: Tensor
    transforms: dict[bool, ColumnScale]
    baseline: Baseline | None
    base: Tensor | None

    def some(self, rows: Tensor, columns: Tensor) -> _Targets:
        """Those of some rows and columns, by their numbers."""
        transforms = {is_transformed: scale.of(columns) for is_transformed, scale in self.transforms.items()}
        base = None if self.base is None else self.base[rows][:, columns]
        return _Targets(self.y[rows][:, columns], transforms, self.baseline, base)

    def member(self, way: _Way, banks: dict[Kind, KernelBank]) -> BankMember:
        """The member that has these targets."""
        bank, target = banks[way.kind], self.transforms[way.is_transformed]
        if not way.has_baseline:
            return BankMember(bank, target, self.y, way.rotates)
        return BankMember(bank, target, self.y, way.rotates, self.baseline, self.base)


def _best_shapes(
    members: Sequence[BankMember], shares: Sequence[float], banks: dict[Kind, KernelBank]
) -> dict[Kind, list[Shape]]:
    """The shapes of most weight, in all members on the same scale of the inputs."""
    mass = {
        kind: sum(share * member.mass for member, share in zip(members, shares, strict=True) if member.rows is bank)
        for kind, bank in banks.items()
    }
    order = torch.cat([torch.as_tensor(of) for of in mass.values()]).argsort(descending=True)[:_MOST_SHAPES].tolist()
    count = len(SHAPES)
    return {kind: [SHAPES[q % count] for q in sorted(order) if q // count == k] for k, kind in enumerate(mass)}
