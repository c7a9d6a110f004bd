"""The column of exposures, over which the rows of a table have collected their counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...sklearn.frames.cells import Cells
from ...sklearn.frames.columns import InputColumn
from ...sklearn.frames.encoding import Encoding
from ...sklearn.frames.problems import shown


def exposure_rule(name: str, cells: Cells, **settings: Any) -> Encoding:
    """How exposures of other tables are read: as those of the first one."""
    if cells.kind not in ("integer", "number"):
        raise ValueError(
            f"expected numbers as exposures, got {shown(name)} ({cells.kind}); name another column, or make numbers "
            "of it"
        )
    return Encoding((InputColumn.learned(name, cells),), missing="drop", **settings)


def exposures(rule: Encoding, cells: Mapping[str, Cells], has_all: bool = False) -> Tensor:
    """Positive exposures (N,), NaN where they are missing, which they may not be where a table is to have all."""
    values = rule.inputs(cells, "raise" if has_all else "drop")[:, 0]
    bad = np.flatnonzero(values <= 0.0)
    if len(bad):
        (name,) = cells
        raise ValueError(
            f"expected positive exposures in {shown(name)}, got {cells[name].shown.iloc[bad[0]]} in row "
            f"{cells[name].shown.index[bad[0]] + 1:,}, and {len(bad):,} such cells in all; leave these rows out"
        )
    return torch.from_numpy(values)
