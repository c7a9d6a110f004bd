"""About how long a fit takes, before it begins."""

from __future__ import annotations

import sys
from typing import NamedTuple

from ..averaging.several_targets import has_time_for_lengthscales
from ..training.costs import slowness
from .baselines import boosted_seconds
from .labels import MOST_CLASSES
from .model_size import NUM_EXACT_ROWS

_LONG = 60.0
"""Seconds from which on it is said what makes a fit shorter."""
_UNITS = (("s", 1.0), ("min", 60.0), ("h", 3600.0))
_AVERAGED_ROWS, _TAUGHT_ROWS = 400, 6000
"""By how many rows parameters are averaged over, or learned, at most: more have others, quick steps."""


class _Costs(NamedTuple):
    """The seconds of a kind of fit where they were measured, on one core of an AMD EPYC.

    :param every: of any such fit.
    :param taught: for each row by which parameters are learned; in averages for each value of these rows.
    :param value: for each row and each output or class of it.
    :param cell: for each cell of the inputs.
    """

    every: float
    taught: float
    value: float
    cell: float


class FitSize(NamedTuple):
    """What the time of a fit depends on.

    :param num_columns: those of numbers, into which text and dates are encoded.
    :param num_values: outputs, or classes.
    :param is_averaged: whether parameters are averaged over.
    :param has_choice: whether held-out rows choose the kernel.
    """

    num_rows: int
    num_columns: int
    num_values: int
    is_classes: bool
    is_averaged: bool
    has_choice: bool

    @property
    def seconds(self) -> float:
        """What such a fit takes on this machine, about, with other parameters at their defaults."""
        every, taught, value, cell = self._costs
        values, cells = self.num_rows * self.num_values, self.num_rows * self.num_columns
        count = min(values, _AVERAGED_ROWS * self.num_values) if self.is_averaged else min(self.num_rows, _TAUGHT_ROWS)
        seconds = slowness() * (every + taught * count + value * values + cell * cells)
        is_of_several = self.is_averaged and not self.is_classes and self.num_values > 1
        if is_of_several and has_time_for_lengthscales(self.num_rows, self.num_values):
            seconds += slowness() * _SECONDS_OF_LENGTHSCALES * count
        if not self.has_choice and not self.is_averaged:
            seconds *= _CLASSES_WITHOUT_CHOICE if self.is_classes else _TARGETS_WITHOUT_CHOICE
        has_boosting = self.is_classes and self.num_rows > NUM_EXACT_ROWS and self.num_values <= MOST_CLASSES
        return seconds + (boosted_seconds(self.num_columns, self.num_values) if has_boosting else 0.0)

    @property
    def _costs(self) -> _Costs:
        """Those of its kind."""
        if self.is_classes and not self.is_averaged:
            return _FEW_CLASSES if self.num_values <= MOST_CLASSES else _MANY_CLASSES
        if self.is_classes:
            return _AVERAGED_CLASSES
        if self.num_values == 1:
            return _AVERAGED_TARGET if self.is_averaged else _TARGET
        return _AVERAGED_TARGETS if self.is_averaged else _TARGETS


_AVERAGED_TARGET = _Costs(0.1, 6e-3, 7e-3, 1.5e-5)
_AVERAGED_TARGETS = _Costs(0.6, 1e-3, 3e-5, 6e-5)
_AVERAGED_CLASSES = _Costs(2.9, 3e-4, 4e-5, 4e-6)
_TARGET = _Costs(0.4, 2.4e-3, 4e-5, 3.2e-5)
_TARGETS = _Costs(9.7, 2e-4, 9e-5, 5e-5)
_FEW_CLASSES = _Costs(8.5, 1.1e-3, 1e-4, 3e-6)
_MANY_CLASSES = _Costs(2.2, 2e-4, 4e-5, 1e-5)
_COUNTS = _Costs(4.5, 2.5e-3, 1e-3, 0.0)
_TAUGHT_COUNTS = 4000
"""Rows that teach parameters of counts, at most."""
_SECONDS_OF_LENGTHSCALES = 5e-3
"""For each value of several targets that have lengthscales of all inputs in an average."""
_TARGETS_WITHOUT_CHOICE, _CLASSES_WITHOUT_CHOICE = 0.25, 0.8
"""The part of the time that is left where the kernel is given."""


def count_seconds(num_rows: int) -> float:
    """What a fit to counts takes on this machine, about, with parameters at their defaults."""
    return slowness() * (_COUNTS.every + _COUNTS.taught * min(num_rows, _TAUGHT_COUNTS) + _COUNTS.value * num_rows)


def in_words(seconds: float) -> str:
    """A time in words, with one digit: more are not known."""
    name, unit = next(pair for pair in reversed(_UNITS) if seconds >= pair[1] or pair[1] == 1.0)
    return f"about {float(f'{seconds / unit:.1g}'):g} {name}"


def tell(seconds: float, shorter: str | None) -> None:
    """Print how long a fit will take, and what makes a long one shorter, such as "time_limit=60"."""
    advice = f"; {shorter} makes it shorter" if shorter is not None and seconds > _LONG else ""
    print(f"the fit takes {in_words(seconds)}{advice}", file=sys.stderr)
