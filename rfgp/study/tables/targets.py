"""Columns of targets as a tensor, with their task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..._support.data_frames import Missing
from ...sklearn.frames.cells import MISSING, Cells
from ...sklearn.frames.problems import several, shown
from ..datasets.base import Task, typed_targets

_FREQUENT = 0.1
"""The share of cells of a target from which on a word for missing cells has to be explained."""


def targets_of(
    cells: Mapping[str, Cells], task: Task | None, name: str
) -> tuple[Tensor | None, Task | None, tuple[str, ...]]:
    """Targets as a tensor, the task, and the names of classes."""
    named = {f"target {shown(key)} of {name}": column for key, column in cells.items()}
    there = {what: column.taken(np.flatnonzero(column.is_there)) for what, column in named.items()}
    is_of_counts = task == "counts" and len(there) > 1
    typed = [typed_targets(_typed(column, what), task, what) for what, column in there.items() if not is_of_counts]
    if is_of_counts or (len(typed) > 1 and any(kind != "regression" for _, kind, _ in typed)):
        raise ValueError(
            f"expected one target for {'counts' if task == 'counts' else 'classification'}, or several for "
            f"regression, got {', '.join(map(repr, cells))}; "
            'take one of them, or pass task="regression" (--task regression)'
        )
    if not typed:
        return None, None, ()
    values, first, classes = typed[0]
    if first == "classification":
        return torch.from_numpy(np.asarray(values, dtype=np.int64)), first, classes
    columns = np.full((len(next(iter(cells.values())).values), len(typed)), np.nan)
    for place, (column, (known, _, _)) in enumerate(zip(cells.values(), typed, strict=True)):
        columns[column.is_there, place] = known
    return torch.from_numpy(columns[:, 0].copy() if len(typed) == 1 else columns), first, ()


def check_frequent(targets: Mapping[str, Cells], name: str) -> None:
    """Raise where many cells of a target of text are a word for missing ones, such as None, which may be a class."""
    for target, cells in targets.items():
        if cells.kind != "text":
            continue
        texts = cells.shown[(cells.states == MISSING) & cells.shown.notna().to_numpy(bool)].astype(str).str.strip()
        counts = texts[texts != ""].value_counts()
        if not len(counts) or counts.iloc[0] < _FREQUENT * len(cells.values):
            continue
        word, count = str(counts.index[0]), int(counts.iloc[0])
        raise ValueError(
            f"expected a known target {shown(target)} in most rows of {name}, got {shown(word)} in {count:,} of "
            f"{len(cells.values):,} cells, which may be a class or stand for no value; pass missing_values= "
            f"(--missing-values), a list of words without {shown(word)} where it is a class, or with it"
        )


def known_rows(
    targets: Mapping[str, Cells], exposure: Mapping[str, Cells], num_rows: int, missing: Missing, name: str
) -> tuple[NDArray[np.int64], list[str]]:
    """The rows that have a target, which alone tell what columns are, and what there is to say about the others.

    :param exposure: what counts have to have too; empty for none.
    """
    if missing == "raise" or not targets:
        return np.arange(num_rows), []
    known = np.flatnonzero(np.any([cells.is_there for cells in targets.values()], axis=0))
    if not len(known):
        raise ValueError(
            f"expected a known target in some rows of {name}, got none of {num_rows:,}; correct the cells of "
            f"{', '.join(map(shown, targets))}, or name another target"
        )
    notes = [f"{several(num_rows - len(known), 'row')} without a target left out"] if len(known) < num_rows else []
    for key, cells in exposure.items():
        without = int((~cells.is_there[known]).sum())
        known = known[cells.is_there[known]]
        if not len(known):
            raise ValueError(
                f"expected an exposure in some rows of {name} with a target, got none; correct the cells of "
                f"{shown(key)}"
            )
        notes += [f"{several(without, 'row')} without an exposure left out"] if without else []
    return known, notes


def _typed(cells: Cells, what: str) -> NDArray[Any]:
    """The values of a target in the type that tells its task."""
    if cells.kind == "date":
        raise ValueError(f"expected numbers or labels in {what}, got dates; make numbers of them")
    if cells.kind == "integer":
        return cells.values.astype(np.int64)
    if cells.kind == "boolean":
        return cells.values.astype(bool)
    return cells.values.astype(str) if cells.kind == "text" else cells.values
