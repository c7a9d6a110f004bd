"""Cells without a value, in the words of messages and reports."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from .cells import INFINITE, MISSING, PRESENT, WRONG, Cells, cut

_MOST_COLUMNS = 8
_MOST_PLACES = 3
_WORDS = {MISSING: "missing", INFINITE: "infinite", WRONG: "wrong"}


def shown(cell: object) -> str:
    """A cell for a message, cut where it is long."""
    return repr(cut(str(cell)))


def several(count: int, word: str) -> str:
    """A number of things in words."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def counts(cells: Cells) -> str:
    """How many cells of a column are missing, infinite or wrong, in words; empty where none are."""
    numbers = ((int((cells.states == state).sum()), word) for state, word in _WORDS.items())
    return ", ".join(f"{count:,} {word}" for count, word in numbers if count)


def bad_cells(cells: Mapping[str, Cells], name: str) -> ValueError:
    """What to raise for cells without a value, with those of every column counted."""
    bad = {column: held for column, held in cells.items() if not held.is_there.all()}
    total = sum(int((~held.is_there).sum()) for held in bad.values())
    named = [f"{column!r}: {counts(held)} ({_places(held)})" for column, held in list(bad.items())[:_MOST_COLUMNS]]
    more = f"; and {len(bad) - _MOST_COLUMNS} columns more" if len(bad) > _MOST_COLUMNS else ""
    without = f"{several(total, 'cell')} without one in {several(len(bad), 'column')}"
    return ValueError(
        f"expected a value in every cell of {name}, got {without}: {'; '.join(named)}{more}; correct them, or pass "
        'missing="drop" or missing="impute" (--missing)'
    )


def check_numbers(cells: Mapping[str, Cells], name: str) -> None:
    """Raise where cells of a column of numbers are text or infinite, which may say more than that a value is missing.

    Such as "high", or "> 100" of a gauge that measures up to 100.
    """
    for column, held in cells.items():
        bad = written(held)
        if held.kind in ("integer", "number") and not bad.is_there.all():
            raise ValueError(
                f"expected numbers as {shown(column)} of {name}, got {counts(bad)} ({_places(bad)}); correct them, or "
                'leave their rows out: name such words by missing_values= (--missing-values), or pass missing="drop" '
                "(--missing drop)"
            )


def warn_of_filled(cells: Mapping[str, Cells]) -> None:
    """Warn of cells that are empty or cannot be read, which are filled in."""
    bad = {name: held for name, held in cells.items() if not held.is_there.all()}
    if bad:
        is_bad = np.stack([~held.is_there for held in bad.values()])
        has_empty = any((held.states == MISSING).any() for held in bad.values())
        examples = {name: _places(written(held)) for name, held in bad.items()}
        named = [
            f"{count:,} in {name}" + (f" ({examples[name]})" if examples[name] else "")
            for name, count in zip(bad, is_bad.sum(1).tolist(), strict=True)
        ]
        warnings.warn(
            f"cells of {int(is_bad.any(0).sum()):,} of {is_bad.shape[1]:,} rows are "
            f"{'empty or ' if has_empty else ''}of another kind, and are filled in: {', '.join(named)}",
            UserWarning,
            stacklevel=4,
        )


def written(cells: Cells) -> Cells:
    """Cells where those that are empty are passed over: the others without a value have text that cannot be read."""
    return replace(cells, states=np.where(cells.states == MISSING, PRESENT, cells.states))


def _places(cells: Cells) -> str:
    """The first bad cells of a column, with the rows that they are in."""
    rows = np.flatnonzero(~cells.is_there)
    texts = {row: str(cells.shown.iloc[row]).strip() for row in rows[:_MOST_PLACES].tolist()}
    places = [f"{shown(text) if text else 'empty'} in row {row + 1}" for row, text in texts.items()]
    return ", ".join(places) + (", ..." if len(rows) > _MOST_PLACES else "")
