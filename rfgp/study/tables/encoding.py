"""Columns of a table as numbers, by rules that are learned from one table and hold for others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..._support import checks
from ...sklearn.frames.cells import Cells, decimal_of, read_as
from ...sklearn.frames.columns import InputColumn, has_names, is_constant, unseen_categories
from .files import AS_RECOGNIZED, ROW_NAMES, Learned, Reading, open_table
from .formats import MISSING, Missing
from .report import bad_cells

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
        return self.inputs(self.cells(frame, decimal=decimal), missing)

    def cells(self, frame: pandas.DataFrame, *, decimal: str | None = None) -> dict[str, Cells]:
        """The cells of the columns of inputs, by name."""
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
        words = self.reading.missing_words
        return {c.name: read_as(wanted[c.name], c.kind, mark, c.date_format, c.unit, words) for c in self.columns}

    def inputs(self, cells: Mapping[str, Cells], missing: Missing | None = None) -> Tensor:
        """The inputs (N, d) of cells, with NaN in rows that have missing ones where these are dropped."""
        how = self.missing if missing is None else checks.choice("missing", missing, MISSING)
        if how == "raise" and any(not found.is_there.all() for found in cells.values()):
            raise bad_cells(cells, "the table")
        parts = [column.encoded(cells[column.name], impute=how == "impute") for column in self.columns]
        return torch.from_numpy(np.concatenate(parts, axis=-1))

    def unseen(self, cells: Mapping[str, Cells]) -> list[str]:
        """The categories of every row that the table that was learned from did not have, such as "region=West"."""
        return unseen_categories(self.categorical, cells)

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


_INDEX = re.compile(
    rf"(?i:{ROW_NAMES}|unnamed:? ?[0-9]*|row_?(?:id|number|name|nr)?s?|(?:.*[ _.-])?(?:id|idx|index))|.*[a-z]I[dD]"
)
"""Names of columns that tell rows apart."""


def roles_of(
    cells: Mapping[str, Cells], targets: list[str], kept: list[str], known: str, rows: NDArray[np.int64]
) -> dict[str, str]:
    """What is done with the columns that are no inputs; ``rows`` has the places of the cells in the table."""
    roles = {name: "target" for name in targets}
    for name, column in cells.items():
        if name not in roles and (column.kind == "empty" or is_constant(column)):
            roles[name] = "empty" if column.kind == "empty" else "constant"
    others = [name for name in cells if name not in roles]
    index = _index(cells, [name for name in others if name not in kept], known, rows)
    if index and len(others) > 1:
        roles[index] = "index"
    names = [name for name in others if name not in roles and name not in kept and has_names(cells[name])]
    return roles | dict.fromkeys(names, "names")


def _index(cells: Mapping[str, Cells], names: list[str], index: str, rows: NDArray[np.int64]) -> str:
    """The first column that tells rows apart; empty for none."""
    for name in names:
        column = cells[name]
        if not column.is_there.all() or column.kind not in ("integer", "text"):
            continue
        if column.kind == "integer" and any(_counts(column.values, each) for each in (rows, np.arange(len(rows)))):
            return name
        if (name == index or _INDEX.fullmatch(name)) and len(set(column.values.tolist())) == len(column.values):
            return name
    return ""


def _counts(values: NDArray[np.float64], rows: NDArray[np.int64]) -> bool:
    """Whether values are the numbers of rows, from 0 or from 1."""
    steps = values - rows
    return len(steps) > 2 and steps[0] in (0.0, 1.0) and bool((steps == steps[0]).all())
