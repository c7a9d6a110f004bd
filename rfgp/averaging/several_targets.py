"""The members of an average for several targets: banks of kernels that all targets share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .bank_member import BankMember, Baseline, LearnsBaseline
from .column_scale import ColumnScale
from .imputed_member import ImputedMember
from .input_scale import InputScale, Kind
from .kernel_bank import SHAPES, KernelBank, Shape
from .member import Member, groups_by_size
from .one_target import CHOOSING, chosen_rows, draws_and_proposals
from .stacking import stacked
from .table_kernel import has_lengthscales
from .table_member import TableMember, TableRows

_KINDS: tuple[Kind, ...] = ("values", "half ranks", "powers")
_MOST_SHAPES = 8
"""Of more than 400 rows so many shapes and scales of the inputs are kept."""
_DRAWS, _PROPOSALS, _FEWEST_DRAWS = 16, 100, 8
_MOST_WORK, _WORK_OF_DRAWS, _MOST_TARGETS = 3e9, 5e8, 16
"""Lengthscales of all inputs are learned, and drawn from their posterior, up to so many targets times cubed rows."""


def members_of_several(
    x: Tensor, draws: Sequence[Tensor], known: Tensor, groups: Tensor, learns_baseline: LearnsBaseline | None
) -> list[Member[Any]]:
    """Members for inputs (N, d) and targets (N, T), or draws of those that are missing.

    Of more than 400 rows, 300 choose the shapes of kernels. Where rows and targets are few, targets have lengthscales
    of all inputs too, on the scales that have most of the weight.

    :param draws: the targets, with other draws of what is missing in each.
    :param known: which targets are known, and count in left-out densities, (N, T).
    :param groups: numbers (N,) of rows that are left out together.
    :param learns_baseline: what learns a baseline for transformed targets.
    """
    y, observed = draws[0], torch.where(known, draws[0], torch.nan)
    targets = {is_transformed: ColumnScale(observed, is_transformed) for is_transformed in (False, True)}
    scales = {kind: InputScale(x, kind) for kind in _KINDS}
    baseline = None if learns_baseline is None else learns_baseline(x, targets[True].forward(y))
    base = None if baseline is None else baseline.left_out
    shapes = {kind: [*SHAPES] for kind in _KINDS}
    if len(x) > CHOOSING:
        rows = chosen_rows(len(x))
        banks = {kind: KernelBank(scale, x[rows], SHAPES) for kind, scale in scales.items()}
        few = _members(banks, targets, y[rows], baseline, None if base is None else base[rows])
        shapes = _best_shapes(few, stacked(few, y[rows], known[rows], groups_by_size(groups[rows])).shares, banks)
    banks = {kind: KernelBank(scales[kind], x, some) for kind, some in shapes.items() if some}
    of_banks = _members(banks, targets, y, baseline, base)
    members: list[Member[Any]] = [*of_banks]
    if len(scales["values"].kept) > 1 and _work(x, y) <= _MOST_WORK and y.shape[1] <= _MOST_TARGETS:
        shares = stacked(members, y, known, groups_by_size(groups)).shares
        plain = [k for k, member in enumerate(of_banks) if member.rotation is None and member.baseline is None]
        best = of_banks[max(plain, key=lambda k: shares[k])]
        rows_of_table = TableRows(best.rows.scale, x)
        if has_lengthscales(rows_of_table.x.shape[1], len(x)):
            members.append(_with_lengthscales(x, y, rows_of_table, best.target))
    if len(draws) == 1:
        return members
    return [ImputedMember([member, *(member.with_targets(draw) for draw in draws[1:])]) for member in members]


def _with_lengthscales(x: Tensor, y: Tensor, rows: TableRows, target: ColumnScale) -> TableMember:
    """A member with lengthscales of all inputs; of more than 400 rows, 300 say where the search begins."""
    member, starts = TableMember(rows, target, y), None
    if len(x) > CHOOSING:
        some = chosen_rows(len(x))
        few = TableMember(TableRows(rows.scale, x[some]), target, y[some])
        few.learn(None, 1, 0)
        starts = few.modes
    draws, proposals = draws_and_proposals(len(x), _DRAWS, _PROPOSALS, _FEWEST_DRAWS)
    member.learn(starts, draws if _work(x, y) <= _WORK_OF_DRAWS else 1, proposals)
    return member


def _work(x: Tensor, y: Tensor) -> float:
    return y.shape[1] * float(len(x)) ** 3


def _members(
    banks: dict[Kind, KernelBank],
    targets: dict[bool, ColumnScale],
    y: Tensor,
    baseline: Baseline | None,
    base: Tensor | None,
) -> list[BankMember]:
    """On every scale of the inputs: targets and their principal components, and what a baseline leaves over."""
    members = []
    for bank in banks.values():
        for rotates in (False, True):
            members += [BankMember(bank, target, y, rotates) for target in targets.values()]
            if baseline is not None:
                members.append(BankMember(bank, targets[True], y, rotates, baseline, base))
    return members


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
