"""A warning of rows in float32 that are so far from zero that their digits are lost."""

from __future__ import annotations

import math
import warnings
from weakref import WeakSet

import torch
from torch import Tensor

_LOST = 1e-3
"""The rounding of values, relative to their spread, from which on the warning is given."""
_WARNED: WeakSet[torch.nn.Module] = WeakSet()


def warn_of_rounding(kernel: torch.nn.Module, x: Tensor, y: Tensor) -> None:
    """Warn, once for a kernel, where inputs (N, d) or targets (N, ...) in float32 lose digits of their spread."""
    if kernel in _WARNED:
        return
    for name, values in (("inputs", x.detach()), ("targets", y.detach())):
        if values.dtype != torch.float32 or not len(values):
            continue
        columns = values.reshape(len(values), -1)
        is_missing = torch.isnan(columns)
        low = columns.masked_fill(is_missing, math.inf).amin(0)
        high = columns.masked_fill(is_missing, -math.inf).amax(0)
        largest, spread = torch.maximum(low.abs(), high.abs()), high - low
        lost = torch.finfo(values.dtype).eps * largest / spread
        worst = int(torch.where((spread > 0) & torch.isfinite(lost), lost, 0.0).argmax())
        if spread[worst] > 0 and lost[worst] > _LOST:
            _WARNED.add(kernel)
            warnings.warn(
                f"{name} in float32 with values up to {float(largest[worst]):.1g} and a spread of "
                f"{float(spread[worst]):.1g} in column {worst} are rounded to {float(lost[worst]):.1g} of that spread: "
                "subtract a constant before they become float32, or take rows and model in float64",
                stacklevel=2,
            )
            return
