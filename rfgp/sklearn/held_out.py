"""Rows of a regression that a model is compared with others on."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .arrays import Floats
from .model_size import NUM_EXACT_ROWS

_MOST_HELD_OUT = 500
_EXTREME = 10.0
"""Targets that are so many standard deviations from their mean."""


def split_rows(targets: Floats, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows to train on, and rows on which the model is compared with others; none of a small table.

    Rows with extreme targets (N, T) are trained on: parameters must have seen spikes.
    """
    num_rows, is_extreme = len(targets), torch.from_numpy((np.abs(targets) > _EXTREME).any(1))
    order = torch.randperm(num_rows, generator=generator)
    order = torch.cat([order[~is_extreme[order]], order[is_extreme[order]]])
    count = 0 if num_rows <= NUM_EXACT_ROWS else min(num_rows // 10, _MOST_HELD_OUT)
    return order[count:].sort().values, order[:count]
