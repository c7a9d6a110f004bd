"""Rows of a table with missing cells, and what inputs they may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from ...sklearn.frames.cells import Cells
from ...sklearn.frames.encoding import Encoding


class Gaps(NamedTuple):
    """Rows with missing cells.

    :param rows: their numbers (G,).
    :param x: inputs (S, G, d) with values of other rows in place of what is missing.
    :param is_marked: whether an input marks all that is missing of a row, (G,): the model knows such rows.
    """

    rows: Tensor
    x: Tensor
    is_marked: Tensor

    @classmethod
    def of(cls, encoding: Encoding, cells: Mapping[str, Cells], some: Tensor) -> Self | None:
        """Those among some rows of a table, by their numbers in it; None without any."""
        rows = some.numpy()
        missing = {rule: ~cells[rule.name].is_there[rows] for rule in encoding.columns}
        has_gaps = np.logical_or.reduce(list(missing.values()))
        if not has_gaps.any():
            return None
        is_unmarked = np.logical_or.reduce([gap & (not rule.marks_missing) for rule, gap in missing.items()])
        taken = {name: held.taken(rows[has_gaps]) for name, held in cells.items()}
        possible = torch.from_numpy(encoding.possible(taken))
        return cls(torch.from_numpy(np.flatnonzero(has_gaps)), possible, torch.from_numpy(~is_unmarked[has_gaps]))
