"""Levels of quantile functions."""

from __future__ import annotations

import torch
from torch import Tensor


def largest_level(uniform: Tensor) -> float:
    """The largest number below 1: uniform draws may have been rounded to 1, where quantiles are infinite."""
    return 1.0 - 0.5 * torch.finfo(uniform.dtype).eps
