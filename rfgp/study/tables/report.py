"""What there is to say about the columns of a table before anything is learned from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...sklearn.frames.cells import Cells, cut
from ...sklearn.frames.problems import counts, several
from ..report import ReportTable, Section

if TYPE_CHECKING:
    import pandas

_MOST_CHARACTERS = 28


@dataclass(frozen=True)
class Column:
    """A column of a table, as it was read.

    :param name: its name.
    :param kind: what its cells are: "integer", "number", "boolean", "date", "text" or "empty".
    :param num_missing: how many cells have no value.
    :param num_distinct: how many values are different.
    :param values: the smallest and the largest value, or some of those of text.
    :param role: "input", "target", "exposure", or why it is left out: "dropped", "index", "constant" or "empty".
    :param duplicate_of: the name of an earlier column with the same values; empty for none.
    :param problems: the missing, infinite and wrong cells, in words.

    >>> import pandas, rfgp
    >>> first, _ = rfgp.study.tables.read(pandas.DataFrame({"size": [1, 2, 4], "id": [7, 8, 9]})).columns
    >>> first.kind, first.values, first.role
    ('integer', '1 to 4', 'input')
    """

    name: str
    kind: str
    num_missing: int
    num_distinct: int
    values: str
    role: str
    duplicate_of: str = ""
    problems: str = ""


def column_of(name: str, cells: Cells, role: str) -> Column:
    """What there is to say about a column."""
    there = cells.values[cells.is_there]
    if cells.kind == "text":
        different = np.unique(there.astype(str))
        shown = ", ".join(different[:4]) + (", ..." if len(different) > 4 else "")
    else:
        different = np.unique(there)
        shown = " to ".join(dict.fromkeys(_value(value, cells) for value in different[[0, -1]])) if len(there) else ""
    missing = int((~cells.is_there).sum())
    return Column(name, cells.kind, missing, len(different), shown, role, problems=counts(cells))


def _value(value: float, cells: Cells) -> str:
    if cells.kind == "date":
        return str(np.datetime64(round(value * 86400.0), "s")).removesuffix("T00:00:00")
    if cells.kind == "boolean":
        return "true" if value else "false"
    return f"{value:.0f}" if cells.kind == "integer" and abs(value) < 1e15 else f"{value:.6g}"


def same_columns(cells: Mapping[str, Cells]) -> dict[str, str]:
    """The columns with the values of an earlier one, by name, with the name of that one."""
    first: dict[Any, str] = {}
    repeated = {}
    for name, column in cells.items():
        is_text = column.kind == "text"
        content = "\0".join(column.values) if is_text else column.values.astype(np.float64).tobytes()
        earlier = first.setdefault((is_text, content), name)
        if earlier != name:
            repeated[name] = earlier
    return repeated


def same_rows(frame: pandas.DataFrame) -> str:
    """How many rows are duplicates, in words; empty where none do. The index has the places of rows, from 0."""
    again = frame.duplicated().to_numpy()
    count = int(again.sum())
    first = f", the first of them row {frame.index[again.argmax()] + 1:,}" if count else ""
    return f"{several(count, 'row')} with all the values of an earlier one{first}" if count else ""


def report(title: str, columns: Sequence[Column], notes: Sequence[str]) -> Section:
    """A table of the columns, and notes about them."""
    rows = []
    for column in columns:
        name, values = (cut(" ".join(text.split()), _MOST_CHARACTERS) for text in (column.name, column.values))
        use = column.role + (f", same as {column.duplicate_of}" if column.duplicate_of else "")
        rows.append([name, column.kind, f"{column.num_missing:,}", f"{column.num_distinct:,}", values, use])
    table = ReportTable(["column", "type", "missing", "distinct", "values", "use"], [rows])
    return Section(title, table=table, note="\n".join(f"note: {note}" for note in notes))
