"""Scales of the columns of a table: one for each, or the same for columns of one unit."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from ..linalg.column_scales import in_units, standardized
from .arrays import Floats

_MANY_COLUMNS, _SHARE = 64, 0.9
_FAR, _SHARE_OF_FARTHEST, _HEAVY, _LIMIT = 6.0, 0.7, 0.02, 3.0
"""Tails are heavy where a value is so many standard deviations from the mean, or that share of the root of the number
of rows, which is the most there can be, and the bulk of the column spreads over less than a fiftieth of one; the column
is then linear up to three spreads."""
_NORMAL = 1.4826
"""The standard deviation of normal values over the median of their deviations."""
_FARTHEST = 1e100
"""Standardized values are no farther from zero, so that distances are finite."""


class ColumnScaler(StandardScaler):
    r"""What standardizes columns of any finite size.

    .. math:: z = (x - m) / s

    Here m and s are the mean and the standard deviation. A column without a spread has its modulus as s, or one where
    it is zero. Where tails are so heavy that values are six standard deviations away, and half of those that differ
    from the median are within about a fiftieth of one, m is the median and s the spread of this bulk, and values beyond
    three spreads count by their logarithm, see :func:`rfgp.linalg.column_scales.standardized`.

    After ``fit`` there are ``mean_``, ``scale_`` and ``limit_``, (d,): how many scales a column is linear up to,
    infinity for most.

    :param compresses: whether heavy tails are looked for.

    >>> scaler = ColumnScaler().fit([[1e300], [3e300]])
    >>> scaler.transform([[1e300], [2e300]]).tolist()
    [[-1.0], [0.0]]
    """

    mean_: Floats
    scale_: Floats
    var_: Floats
    limit_: Floats

    def __init__(self, *, compresses: bool = False) -> None:
        super().__init__()
        self.compresses = compresses

    def fit(self, X: ArrayLike, y: Any = None, sample_weight: Floats | None = None) -> Self:
        """Learn from columns (N, d), where NaN is missing, with weights of the rows (N,)."""
        columns = np.asarray(X, dtype=np.float64)
        largest = np.fmax.reduce(np.abs(columns), axis=0)
        unit = np.where(largest > 0.0, np.exp2(np.floor(np.log2(np.where(largest > 0.0, largest, 1.0)))), 1.0)
        columns = columns / unit
        super().fit(columns, sample_weight=sample_weight)
        is_alike = np.nanmin(columns, axis=0) == np.nanmax(columns, axis=0)
        self.scale_ = np.where(is_alike, np.where(largest > 0.0, largest / unit, 1.0), self.scale_)
        self.limit_ = np.full(len(unit), np.inf)
        if self.compresses:
            self._take_bulk(columns)
        with np.errstate(over="ignore", under="ignore"):
            self.mean_, self.scale_, self.var_ = self.mean_ * unit, self.scale_ * unit, self.var_ * unit**2
        return self

    def transform(self, X: ArrayLike, copy: bool | None = None) -> Floats:
        """Standardized columns (N, d)."""
        del copy
        z: Floats = standardized(torch.tensor(np.asarray(X, dtype=np.float64)), self.scales).numpy()
        return np.clip(z, -_FARTHEST, _FARTHEST, out=z)

    def inverse_transform(self, X: ArrayLike, copy: bool | None = None) -> Floats:
        """Columns (N, d) in their own units."""
        del copy
        values: Floats = in_units(torch.tensor(np.asarray(X, dtype=np.float64)), self.scales).numpy()
        return values

    @property
    def scales(self) -> Tensor:
        """What :func:`rfgp.linalg.column_scales.standardized` takes, (2, d) or, with heavy tails, (3, d)."""
        has_tails = not np.isinf(self.limit_).all()
        rows = [self.mean_, self.scale_, *([self.limit_] if has_tails else [])]
        return torch.stack([torch.from_numpy(row) for row in rows])

    def _take_bulk(self, columns: Floats) -> None:
        """Give columns with heavy tails the median and the spread of their bulk."""
        far = min(_FAR, _SHARE_OF_FARTHEST * len(columns) ** 0.5)
        is_far = np.abs(columns - self.mean_).max(0) > far * self.scale_
        (places,) = np.nonzero(is_far)
        some = columns[:, places]
        centers = np.median(some, axis=0)
        deviations = np.abs(some - centers)
        spreads = _NORMAL * np.nanmedian(np.where(deviations > 0.0, deviations, np.nan), axis=0)
        is_heavy = spreads < _HEAVY * self.scale_[places]
        heavy = places[is_heavy]
        self.mean_[heavy], self.scale_[heavy], self.limit_[heavy] = centers[is_heavy], spreads[is_heavy], _LIMIT


def has_one_unit(inputs: Floats) -> bool:
    """Whether columns (N, d) seem to have one unit, as pixels do: they are many, and most have the same minimum.

    Columns of two values, as categories have them, count only where there are no others.
    """
    lowest, highest = inputs.min(0), inputs.max(0)
    is_binary = ((inputs == lowest) | (inputs == highest)).all(0)
    lowest = lowest if is_binary.all() else lowest[~is_binary]
    return len(lowest) >= _MANY_COLUMNS and float((lowest == lowest.min()).mean()) >= _SHARE


def input_scaler(inputs: Floats, weights: Floats | None) -> ColumnScaler:
    """What standardizes every column, or all columns of one unit by the same number."""
    scaler = ColumnScaler(compresses=not has_one_unit(inputs)).fit(inputs, sample_weight=weights)
    if not scaler.compresses and (scaler.var_ > 0).any():
        scaler.scale_ = np.full_like(scaler.scale_, np.sqrt(scaler.var_.mean()))
    return scaler


def num_lengthscales(scaler: ColumnScaler) -> int:
    """How many lengthscales a kernel has: one where all columns are scaled by the same number."""
    is_one = len(scaler.scale_) >= _MANY_COLUMNS and bool((scaler.scale_ == scaler.scale_[0]).all())
    return 1 if is_one else len(scaler.scale_)
