"""Scales of the columns of a table: one for each, or the same for columns of one unit."""

from __future__ import annotations

import numpy as np
from sklearn.preprocessing import StandardScaler

from .arrays import Floats

_MANY_COLUMNS, _SHARE = 64, 0.9


def has_one_unit(inputs: Floats) -> bool:
    """Whether columns (N, d) seem to have one unit, as pixels do: they are many, and most have the same minimum.

    Columns of two values, as categories have them, count only where there are no others.
    """
    lowest, highest = inputs.min(0), inputs.max(0)
    is_binary = ((inputs == lowest) | (inputs == highest)).all(0)
    lowest = lowest if is_binary.all() else lowest[~is_binary]
    return len(lowest) >= _MANY_COLUMNS and float((lowest == lowest.min()).mean()) >= _SHARE


def input_scaler(inputs: Floats, weights: Floats | None) -> StandardScaler:
    """What standardizes every column, or all columns of one unit by the same number."""
    scaler = StandardScaler().fit(inputs, sample_weight=weights)
    if has_one_unit(inputs) and (scaler.var_ > 0).any():
        scaler.scale_ = np.full_like(scaler.scale_, np.sqrt(scaler.var_.mean()))
    return scaler


def num_lengthscales(scaler: StandardScaler) -> int:
    """How many lengthscales a kernel has: one where all columns are scaled by the same number."""
    is_one = len(scaler.scale_) >= _MANY_COLUMNS and bool((scaler.scale_ == scaler.scale_[0]).all())
    return 1 if is_one else len(scaler.scale_)
