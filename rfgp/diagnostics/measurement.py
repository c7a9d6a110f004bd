"""A mean and its standard error."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple, Self

SIGNIFICANT = 2.0
"""The number of standard errors from which on a difference counts."""


class Measurement(NamedTuple):
    """A mean and its standard error.

    :param error: its standard error; 0 or NaN where there is none.

    >>> difference = Measurement(0.3, 0.1)
    >>> str(difference), difference.is_above
    ('0.30 ± 0.10', True)
    """

    mean: float
    error: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float], row_errors: Sequence[float | None] = ()) -> Self:
        """The mean over seeds, with the errors of seeds and those of test rows, which all seeds share.

        >>> Measurement.of([1.0, 3.0])
        Measurement(mean=2.0, error=1.0)
        """
        if not all(map(math.isfinite, values)):
            return cls(math.inf if math.inf in values else math.nan, 0.0)
        rows = [error for error in row_errors if error is not None and math.isfinite(error)]
        over_rows = sum(error**2 for error in rows) / max(len(rows), 1)
        over_seeds = statistics.variance(values) / len(values) if len(values) > 1 else 0.0
        return cls(statistics.fmean(values), math.sqrt(over_rows + over_seeds))

    def __str__(self) -> str:
        """Two digits of the error, and at most four of the mean."""
        mean, error = self
        if not (math.isfinite(mean) and math.isfinite(error)) or error == 0 or mean == 0:
            return f"{mean:.4g}"
        decimals = max(min(1 - _magnitude(error), max(3 - _magnitude(mean), -_magnitude(error))), 0)
        return f"{mean:.{decimals}f} ± {error:.{decimals}f}"

    @property
    def is_above(self) -> bool:
        """Whether the mean is above zero, by more than its error explains."""
        return self.mean > SIGNIFICANT * self.error

    @property
    def is_below(self) -> bool:
        """Whether the mean is below zero, by more than its error explains."""
        return self.mean < -SIGNIFICANT * self.error

    def minus(self, value: float) -> Self:
        """The difference from a number without error."""
        return type(self)(self.mean - value, self.error)

    def times(self, factor: float) -> Self:
        """The same in a unit that is smaller by a factor."""
        return type(self)(factor * self.mean, factor * self.error)


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value)))
