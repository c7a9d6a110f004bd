"""Rows of tables found by their values."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_ROUNDING = 1e-9
"""Columns of a row that differ by such a part of the largest one are equal."""


def row_numbers(table: Sequence[Tensor | None], wanted: Sequence[Tensor | None]) -> Tensor:
    """The number of an equal row of a table for each wanted row, (n,), or -1; every row is found once at most.

    Inputs are equal to the last bit, and other columns up to rounding: values of a mean function differ in their last
    bits where they are computed with other rows.

    :param table: the columns of the table, (N, ...) each; inputs come first. NaN is equal to NaN.
    :param wanted: those of the rows that are looked for, (n, ...) each; None where the table has None.
    """
    inputs, rows = (_flat(part[0]) for part in (table, wanted))
    if inputs.shape[-1] != rows.shape[-1]:
        return torch.full((len(rows),), -1)
    is_near = torch.ones(len(inputs), dtype=torch.bool)
    for column, values in zip(inputs.unbind(-1), rows.unbind(-1), strict=True):
        is_near &= torch.isin(column, values)
    near = is_near.nonzero().squeeze(-1)
    places: dict[bytes, list[int]] = {}
    for number, key in zip(near.tolist(), _keys(table, near), strict=True):
        places.setdefault(key, []).append(number)
    for numbers in places.values():
        numbers.reverse()
    result = [places[key].pop() if places.get(key) else -1 for key in _keys(wanted, torch.arange(len(rows)))]
    if -1 in result:
        _find_rounded(result, table, wanted, sorted(number for numbers in places.values() for number in numbers))
    return torch.tensor(result, dtype=torch.long)


def _find_rounded(
    result: list[int], table: Sequence[Tensor | None], wanted: Sequence[Tensor | None], left: list[int]
) -> None:
    """Complete the numbers of rows, in place, by rows that are left, with equal inputs and columns up to rounding."""
    if not left:
        return
    missing = [place for place, number in enumerate(result) if number < 0]
    columns, values = _joined(table[1:], torch.tensor(left)), _joined(wanted[1:], torch.tensor(missing))
    if columns.shape[-1] != values.shape[-1] or not values.shape[-1]:
        return
    places: dict[bytes, list[int]] = {}
    for number, key in enumerate(_keys(table[:1], torch.tensor(left))):
        places.setdefault(key, []).append(number)
    for place, value, key in zip(missing, values, _keys(wanted[:1], torch.tensor(missing)), strict=True):
        numbers = places.get(key, [])
        is_equal = torch.isclose(columns[numbers], value, 0.0, _ROUNDING * float(value.nan_to_num().abs().max()), True)
        found = is_equal.all(-1).nonzero().flatten().tolist()
        if found:
            result[place] = left[numbers.pop(found[0])]


def _flat(values: Tensor | None) -> Tensor:
    """Columns (N, k) in float64 on the CPU, without negative zeros."""
    if values is None:
        return torch.empty(0, 0, dtype=torch.float64)
    real = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
    return real.detach().cpu().double().reshape(len(values), real.shape[1:].numel()) + 0.0


def _joined(columns: Sequence[Tensor | None], rows: Tensor) -> Tensor:
    """The values of some rows (n, k)."""
    parts = [_flat(part[rows.to(part.device)]) for part in columns if part is not None]
    return torch.cat([torch.empty(len(rows), 0, dtype=torch.float64), *parts], dim=-1)


def _keys(columns: Sequence[Tensor | None], rows: Tensor) -> list[bytes]:
    """The values of some rows as bytes."""
    return [row.tobytes() for row in _joined(columns, rows).numpy()]
