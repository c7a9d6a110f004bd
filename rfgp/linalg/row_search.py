"""Rows of tables found by their values."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def row_numbers(table: Sequence[Tensor | None], wanted: Sequence[Tensor | None]) -> Tensor:
    """The number of an equal row of a table for each wanted row, (n,), or -1; every row is found once at most.

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
    return torch.tensor(result, dtype=torch.long)


def _flat(values: Tensor | None) -> Tensor:
    """Columns (N, k) in float64 on the CPU, without negative zeros."""
    if values is None:
        return torch.empty(0, 0, dtype=torch.float64)
    real = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
    return real.detach().cpu().double().reshape(len(values), real.shape[1:].numel()) + 0.0


def _keys(columns: Sequence[Tensor | None], rows: Tensor) -> list[bytes]:
    """The values of some rows as bytes."""
    parts = [_flat(part[rows.to(part.device)]) for part in columns if part is not None]
    return [row.tobytes() for row in torch.cat(parts, dim=-1).numpy()]
