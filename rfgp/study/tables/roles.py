"""What is done with the columns of a table that are no inputs."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ...sklearn.frames.cells import Cells
from ...sklearn.frames.columns import has_names
from .files import ROW_NAMES

_INDEX = re.compile(
    rf"(?i:{ROW_NAMES}|unnamed:? ?[0-9]*|row_?(?:id|number|name|nr)?s?|(?:.*[ _.-])?(?:id|idx|index))|.*[a-z]I[dD]"
)
"""Names of row identifiers."""


def roles_of(
    cells: Mapping[str, Cells], given: Mapping[str, str], kept: list[str], known: str, rows: NDArray[np.int64]
) -> dict[str, str]:
    """What is done with the columns that are no inputs; ``rows`` has the places of the cells in the table.

    :param given: the targets and exposures, which are known.
    """
    roles = dict(given)
    for name, column in cells.items():
        if name not in roles and (column.kind == "empty" or column.is_constant):
            roles[name] = "empty" if column.kind == "empty" else "constant"
    others = [name for name in cells if name not in roles]
    index = _index(cells, [name for name in others if name not in kept], known, rows)
    if index and len(others) > 1:
        roles[index] = "index"
    names = [name for name in others if name not in roles and name not in kept and has_names(cells[name])]
    return roles | dict.fromkeys(names, "names")


def _index(cells: Mapping[str, Cells], names: list[str], index: str, rows: NDArray[np.int64]) -> str:
    """The first row identifier; empty for none."""
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
