"""A number and its standard error."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple, Self

from .report import plus_minus

SIGNIFICANT = 2.0
"""The number of standard errors from which on a difference is one."""


class Estimate(NamedTuple):
    """A number and its standard error.

    :param mean: the number.
    :param error: its standard error; 0 where none is known.
    """

    mean: float
    error: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float], row_errors: Sequence[float | None] = ()) -> Self:
        """The mean over seeds, with the errors of seeds and of the test rows, which all seeds share.

        :param values: a value per seed.
        :param row_errors: their standard errors over test rows; default: values without one.

        >>> Estimate.of([1.0, 3.0], [0.0, 0.0])
        Estimate(mean=2.0, error=1.0)
        """
        if not all(map(math.isfinite, values)):
            return cls(math.inf if math.inf in values else math.nan, 0.0)
        rows = [error for error in row_errors if error is not None and math.isfinite(error)]
        over_rows = sum(error**2 for error in rows) / max(len(rows), 1)
        over_seeds = statistics.variance(values) / len(values) if len(values) > 1 else 0.0
        return cls(statistics.fmean(values), math.sqrt(over_rows + over_seeds))

    def __str__(self) -> str:
        return plus_minus(self.mean, self.error)

    @property
    def is_above(self) -> bool:
        """Whether the number is above zero, by more than its error explains."""
        return self.mean > SIGNIFICANT * self.error

    @property
    def is_below(self) -> bool:
        """Whether the number is below zero, by more than its error explains."""
        return self.mean < -SIGNIFICANT * self.error

    def minus(self, value: float) -> Estimate:
        """The difference from a number.

        :param value: the number.
        """
        return Estimate(self.mean - value, self.error)

    def times(self, factor: float) -> Estimate:
        """The number in another unit.

        :param factor: the number of new units in an old one.
        """
        return Estimate(factor * self.mean, factor * self.error)
