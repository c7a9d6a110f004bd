"""Columns of a table as numbers, by rules that are learned from one table and hold for others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..._support import checks
from .cells import Cells, decimal_of, read_as
from .columns import MOST_CATEGORIES, InputColumn
from .files import AS_RECOGNIZED, ROW_NAMES, Learned, Reading, open_table
from .formats import MISSING, Missing
from .report import bad_cells, shown

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Encoding:
    """How the columns of a table become inputs; it is learned by :func:`rfgp.study.tables.read`.

    :param columns: the rules of the columns, in the order of the inputs.
    :param missing: what is done about missing cells: "raise", "drop" or "impute".
    :param index: the name of the column that tells rows apart; empty for none.
    :param reading: how the file of the table was read.
    """

    columns: tuple[InputColumn, ...]
    missing: Missing = "raise"
    index: str = ""
    reading: Reading = AS_RECOGNIZED

    @property
    def learned(self) -> Learned:
        """What is known of files with the same columns."""
        return Learned(self.reading, frozenset(column.name for column in self.columns))

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(name for column in self.columns for name in column.names)

    def encode(self, frame: pandas.DataFrame, *, decimal: str | None = None, missing: Missing | None = None) -> Tensor:
        """The inputs (N, d), float64, of a table with the same columns, in any order; others are not looked at."""
        how = self.missing if missing is None else checks.choice("missing", missing, MISSING)
        frame = open_table(frame, AS_RECOGNIZED).frame
        there = set(frame.columns)
        absent = [column.name for column in self.columns if column.name not in there]
        if absent:
            names = ", ".join(map(repr, absent))
            raise ValueError(
                f"expected the columns of the table that was learned from, got none for {names}; add "
                f"{'it' if len(absent) == 1 else 'them'}"
            )
        if not self.columns:
            raise ValueError("expected columns of inputs, got none; learn from a table that has some")
        wanted = frame[[column.name for column in self.columns]]
        if decimal is None:
            mark = decimal_of(wanted, "the table", self.reading.decimal) or "."
        else:
            mark = checks.choice("decimal", decimal, (".", ","))
        cells = {c.name: read_as(wanted[c.name], c.kind, mark, c.date_format, c.unit) for c in self.columns}
        if how == "raise" and any(not found.is_there.all() for found in cells.values()):
            raise bad_cells(cells, "the table")
        parts = [column.encoded(cells[column.name], impute=how == "impute") for column in self.columns]
        return torch.from_numpy(np.concatenate(parts, axis=-1))

    def unseen(self, frame: pandas.DataFrame) -> list[str]:
        """The categories of every row that the table that was learned from did not have, such as "region=West"."""
        rows = [""] * len(frame)
        for column in self.categorical:
            cells = read_as(frame[column.name], "text", ".", "")
            for row in np.flatnonzero(cells.is_there & ~column.is_known(cells)):
                rows[row] = ", ".join(filter(None, [rows[row], f"{column.name}={cells.values[row]}"]))
        return rows

    @property
    def categorical(self) -> tuple[InputColumn, ...]:
        """The columns of text."""
        return tuple(column for column in self.columns if column.kind == "text")

    def to_json(self) -> dict[str, Any]:
        """The rules as numbers, strings, lists and dictionaries."""
        columns = [column.to_json() for column in self.columns]
        return {"columns": columns, "missing": self.missing, "index": self.index, "reading": asdict(self.reading)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Encoding:
        """The rules that :meth:`to_json` gave."""
        columns = tuple(InputColumn.from_json(column) for column in record["columns"])
        return cls(columns, record["missing"], record["index"], Reading(**record.get("reading", {})))


def too_many_categories(cells: Mapping[str, Cells]) -> ValueError | None:
    """What to raise for columns of text with too many different values; None where there are none."""
    long = {}
    for name, column in cells.items():
        if column.kind == "text":
            count = len(np.unique(column.values[column.is_there].astype(str)))
            if count > MOST_CATEGORIES:
                long[name] = count
    if not long:
        return None
    named = ", ".join(f"{count:,} in {name!r} such as {_example(cells[name])}" for name, count in long.items())
    names: Sequence[str] = list(long)
    return ValueError(
        f"expected at most {MOST_CATEGORIES} different values in a column of text, got {named}; make numbers of them, "
        f"or drop the columns (--drop {','.join(names)})"
    )


def _example(cells: Cells) -> str:
    """A value of a column of text, and what follows the numbers where all of them are numbers with a unit."""
    there = cells.shown[cells.is_there].astype(str).str.strip()
    unit = there.str.extract(r"^[+-]?[0-9][0-9.,]*\s*(\D+)$", expand=False)
    if bool(unit.notna().all()) and unit.nunique() == 1:
        return f"{shown(there.iloc[0])}, where numbers have the unit {unit.iloc[0]!r} behind them"
    return shown(there.iloc[0])


_INDEX = re.compile(
    rf"(?i:{ROW_NAMES}|unnamed:? ?[0-9]*|row_?(?:id|number|name|nr)?s?|(?:.*[ _.-])?(?:id|idx|index))|.*[a-z]I[dD]"
)
"""Names of columns that tell rows apart."""


_SHARE_OF_NAMES = 0.5
"""The share of different values in a column of text from which on these are names of rows."""


def roles_of(cells: Mapping[str, Cells], targets: list[str], kept: list[str], known: str) -> dict[str, str]:
    """What is done with the columns that are no inputs."""
    roles = {name: "target" for name in targets}
    for name, column in cells.items():
        if name not in roles and (column.kind == "empty" or is_constant(column)):
            roles[name] = "empty" if column.kind == "empty" else "constant"
    others = [name for name in cells if name not in roles]
    index = _index(cells, [name for name in others if name not in kept], known)
    if index and len(others) > 1:
        roles[index] = "index"
    names = [name for name in others if name not in roles and name not in kept and _has_names(cells[name])]
    return roles | dict.fromkeys(names, "names")


def _has_names(cells: Cells) -> bool:
    """Whether nearly every row has a text of its own."""
    if cells.kind != "text":
        return False
    count = len(np.unique(cells.values[cells.is_there].astype(str)))
    return count > max(MOST_CATEGORIES, _SHARE_OF_NAMES * int(cells.is_there.sum()))


def is_constant(cells: Cells) -> bool:
    """Whether all values that are there are the same."""
    values = cells.values[cells.is_there]
    return len(values) > 0 and bool((values == values[0]).all())


def _index(cells: Mapping[str, Cells], names: list[str], index: str) -> str:
    """The first column that tells rows apart; empty for none."""
    for name in names:
        column = cells[name]
        if not column.is_there.all() or column.kind not in ("integer", "text"):
            continue
        if column.kind == "integer":
            steps = column.values - np.arange(len(column.values))
            if steps[0] in (0.0, 1.0) and bool((steps == steps[0]).all()) and len(steps) > 2:
                return name
        if (name == index or _INDEX.fullmatch(name)) and len(set(column.values.tolist())) == len(column.values):
            return name
    return ""
