"""Columns of targets as a tensor, with their task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...sklearn.frames.cells import Cells
from ..datasets.base import Task, typed_targets
from .formats import Missing
from .report import several, shown


def targets_of(
    cells: Mapping[str, Cells], task: Task | None, name: str
) -> tuple[Tensor | None, Task | None, tuple[str, ...]]:
    """Targets as a tensor, the task, and the names of classes."""
    named = {f"target {shown(key)} of {name}": column for key, column in cells.items()}
    there = {what: column.taken(np.flatnonzero(column.is_there)) for what, column in named.items()}
    typed = [typed_targets(_typed(column, what), task, what) for what, column in there.items()]
    if not typed:
        return None, None, ()
    (values, first, classes), *others = typed
    if others and any(kind != "regression" for _, kind, _ in typed):
        raise ValueError(
            f"expected one target for classification, or several for regression, got {', '.join(map(repr, cells))}; "
            'take one of them, or pass task="regression" (--task regression)'
        )
    if first == "classification":
        return torch.from_numpy(np.asarray(values, dtype=np.int64)), first, classes
    columns = np.full((len(next(iter(cells.values())).values), len(typed)), np.nan)
    for place, (column, (known, _, _)) in enumerate(zip(cells.values(), typed, strict=True)):
        columns[column.is_there, place] = known
    return torch.from_numpy(columns[:, 0].copy() if len(typed) == 1 else columns), first, ()


def known_rows(
    targets: Mapping[str, Cells], num_rows: int, missing: Missing, name: str
) -> tuple[NDArray[np.int64], list[str]]:
    """The rows that have a target, which alone tell what columns are, and what there is to say about the others."""
    if missing == "raise" or not targets:
        return np.arange(num_rows), []
    known = np.flatnonzero(np.any([cells.is_there for cells in targets.values()], axis=0))
    if not len(known):
        raise ValueError(
            f"expected a known target in some rows of {name}, got none of {num_rows:,}; correct the cells of "
            f"{', '.join(map(shown, targets))}, or name another target"
        )
    without = num_rows - len(known)
    return known, [f"{several(without, 'row')} without a target left out"] if without else []


def _typed(cells: Cells, what: str) -> NDArray[Any]:
    """The values of a target in the type that tells its task."""
    if cells.kind == "date":
        raise ValueError(f"expected numbers or labels in {what}, got dates; make numbers of them")
    if cells.kind == "integer":
        return cells.values.astype(np.int64)
    if cells.kind == "boolean":
        return cells.values.astype(bool)
    return cells.values.astype(str) if cells.kind == "text" else cells.values
