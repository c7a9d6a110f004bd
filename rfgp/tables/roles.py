"""Which columns of a table are inputs, and which are left out."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from .cells import Cells
from .files import ROW_NAMES

_INDEX = re.compile(
    rf"(?i:{ROW_NAMES}|unnamed:? ?[0-9]*|row_?(?:id|number|name|nr)?s?|(?:.*[ _.-])?(?:id|idx|index))|.*[a-z]I[dD]"
)
"""Names of columns that tell rows apart."""


def roles_of(cells: Mapping[str, Cells], targets: list[str], kept: list[str], known: str) -> dict[str, str]:
    """What is done with the columns that are no inputs."""
    roles = {name: "target" for name in targets}
    for name, found in cells.items():
        if name not in roles and (found.kind == "empty" or is_constant(found)):
            roles[name] = "empty" if found.kind == "empty" else "constant"
    others = [name for name in cells if name not in roles]
    index = _index(cells, [name for name in others if name not in kept], known)
    return roles | {index: "index"} if index and len(others) > 1 else roles


def is_constant(cells: Cells) -> bool:
    """Whether all values that are there are the same."""
    values = cells.values[cells.is_there]
    return len(values) > 0 and bool((values == values[0]).all())


def _index(cells: Mapping[str, Cells], names: list[str], known: str) -> str:
    """The first column that tells rows apart; empty for none."""
    for name in names:
        found = cells[name]
        if not found.is_there.all() or found.kind not in ("integer", "text"):
            continue
        if found.kind == "integer":
            steps = found.values - np.arange(len(found.values))
            if steps[0] in (0.0, 1.0) and bool((steps == steps[0]).all()) and len(steps) > 2:
                return name
        if (name == known or _INDEX.fullmatch(name)) and len(set(found.values.tolist())) == len(found.values):
            return name
    return ""
