"""Columns of a table as inputs: numbers, parts of dates, categories, and what is missing, by rules that are learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.preprocessing import TargetEncoder

from ..arrays import Floats
from .cells import Cells, Kind, days_to_moments

MOST_CATEGORIES = 50
"""The largest number of categories with an input each; more of them have the means of their targets."""
FEWEST_LEVELS, _MOST_LEVELS, _MOST_NUMBERS = 11, 300, 6_000_000
"""A kernel on levels takes so many categories with an input each, and so many numbers of them in all rows."""
_MANY_ROWS = 100_000
"""Of more rows the mean of the target in each category is known, and near rows predict by few inputs alone."""

_SHARE_OF_NAMES = 0.5
"""The share of different values in a column of text from which on these are names of rows."""
_FEWEST_MISSING = 10
"""How many cells have to be missing, and to be there, for an input that marks them."""
_PARTS = ("year", "month", "day", "weekday", "hour")


@dataclass(frozen=True)
class InputColumn:
    """How one column becomes numbers.

    :param fill: what replaces missing cells that no other row has.
    :param categories: of text, sorted: two become one input, more become one input each.
    :param codes: of many categories instead: the means of targets in each, and the logarithm of 1 + its rows. The last
        one is that of other categories.
    :param parts: of dates, beside the days since 1970: "year", "month", "day", "weekday", "hour" where these vary.
    :param unit: what stands before or behind numbers.
    :param marks_missing: whether one more input is 1 where a cell is missing.
    """

    name: str
    kind: Kind
    fill: float | str
    categories: tuple[str, ...] = ()
    date_format: str = ""
    parts: tuple[str, ...] = ()
    codes: tuple[tuple[float, ...], ...] = ()
    unit: str = ""
    marks_missing: bool = False

    @classmethod
    def learned(cls, name: str, cells: Cells, marks_missing: bool = False) -> Self:
        """The rule for a column, without codes."""
        values = cells.values[cells.is_there]
        fewest = min(len(values), len(cells.values) - len(values))
        rule = cls(name, cells.kind, "", marks_missing=marks_missing and fewest >= _FEWEST_MISSING)
        if cells.kind == "text":
            categories, counts = np.unique(values.astype(str), return_counts=True)
            return replace(rule, fill=str(categories[counts.argmax()]), categories=tuple(map(str, categories)))
        fill = float(np.round(values.mean()) if cells.kind == "boolean" else np.median(values))
        each = _parts_of_dates(values) if cells.kind == "date" else {}
        parts = tuple(part for part, of_rows in each.items() if len(np.unique(of_rows)) > 1)
        return replace(rule, fill=fill, parts=parts, date_format=cells.date_format, unit=cells.unit)

    def coded(self, cells: Cells, y: NDArray[Any], task: str) -> tuple[Self, Floats]:
        """The rule with codes of categories, and the numbers of the rows it is learned from.

        Of these a code comes from other folds of rows, so that no row sees its own target.

        :param y: targets (N,) or (N, T), or class numbers.

        Source: Micci-Barreca, 2001.
        """
        values = np.where(cells.is_there, cells.values, self.fill).astype(str)[:, None]
        known = np.asarray(self.categories)[:, None]
        places = np.searchsorted(self.categories, values[:, 0])
        counts = np.log1p(np.bincount(places, minlength=len(known)))
        of_rows, of_codes, of_others = [], [], []
        for target in y.reshape(len(y), -1).T:
            there = ~np.isnan(target) if target.dtype.kind == "f" else np.ones(len(target), bool)
            encoder = _target_encoder(is_continuous=task != "classification")
            of_folds = encoder.fit_transform(values[there], target[there])
            of_rows.append(encoder.transform(values))
            of_rows[-1][there] = of_folds
            of_codes.append(encoder.transform(known))
            of_others.append(np.atleast_1d(encoder.target_mean_))
        codes = np.vstack([np.column_stack([*of_codes, counts]), np.append(np.concatenate(of_others), 0.0)])
        learned = replace(self, codes=tuple(map(tuple, codes.tolist())))
        return learned, learned._marked(np.column_stack([*of_rows, counts[places]]), cells)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs that the column becomes."""
        marks = (f"{self.name} is missing",) if self.marks_missing else ()
        if self.codes:
            means = len(self.codes[0]) - 1
            numbers = [""] if means == 1 else [f" {number}" for number in range(means)]
            return (*(f"{self.name}: mean of target{number}" for number in numbers), f"{self.name}: log rows", *marks)
        if self.kind != "text":
            return (self.name, *(f"{self.name}: {part}" for part in self.parts), *marks)
        shown_ones = self.categories[1:] if len(self.categories) == 2 else self.categories
        return (*(f"{self.name}={category}" for category in shown_ones), *marks)

    @property
    def has_levels(self) -> bool:
        """Whether the column has so many categories with an input each that a kernel has effects of them."""
        return not self.codes and len(self.categories) >= FEWEST_LEVELS

    def encoded(self, cells: Cells) -> Floats:
        """The numbers of cells, (N, number of inputs); missing ones are filled in.

        Of text, a category that is not known has zeros, which is far from all others; the middle, of two categories;
        or the mean of all targets.
        """
        values = np.where(cells.is_there, cells.values, self.fill)
        if self.kind == "text":
            numbers = self._of_categories(values.astype(str))
        else:
            values = values.astype(np.float64)
            each = _parts_of_dates(values) if self.parts else {}
            numbers = np.column_stack([values, *(each[part] for part in self.parts)])
        return self._marked(numbers, cells)

    def _of_categories(self, values: NDArray[Any]) -> Floats:
        places = np.minimum(np.searchsorted(self.categories, values), len(self.categories) - 1)
        is_known = np.asarray(self.categories)[places] == values
        if self.codes:
            return np.asarray(self.codes)[np.where(is_known, places, len(self.categories))]
        if len(self.categories) <= 2:
            return np.where(is_known, places == len(self.categories) - 1, 0.5)[:, None]
        return ((places[:, None] == np.arange(len(self.categories))) & is_known[:, None]).astype(np.float64)

    def _marked(self, numbers: Floats, cells: Cells) -> Floats:
        return np.column_stack([numbers, ~cells.is_there]) if self.marks_missing else numbers

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """The rule of a dictionary of its fields, with lists in place of tuples."""
        tuples = {name: tuple(record[name]) for name in ("categories", "parts")}
        return cls(**{**record, **tuples, "codes": tuple(map(tuple, record["codes"]))})


def _target_encoder(is_continuous: bool) -> TargetEncoder:
    """An encoder with five random folds, which scikit-learn takes as a splitter since 1.9."""
    encoder = TargetEncoder(target_type="continuous" if is_continuous else "auto")
    if encoder.random_state == "deprecated":
        folds = KFold if is_continuous else StratifiedKFold
        return encoder.set_params(cv=folds(5, shuffle=True, random_state=0))
    return encoder.set_params(random_state=0)


def _parts_of_dates(days: Floats) -> dict[str, Floats]:
    """The parts of dates that are given by days since 1970."""
    moments = days_to_moments(days)
    hours = np.asarray(moments.hour) + np.asarray(moments.minute) / 60.0
    fields = (moments.year, moments.month, moments.day, moments.day_of_week, hours)
    return {part: np.asarray(field, dtype=np.float64) for part, field in zip(_PARTS, fields, strict=True)}


def most_levels(num_rows: int) -> int:
    """The largest number of categories with an input each, for a kernel on levels; few of many rows."""
    if num_rows > _MANY_ROWS:
        return FEWEST_LEVELS - 1
    return max(MOST_CATEGORIES, min(_MOST_LEVELS, _MOST_NUMBERS // max(num_rows, 1)))


def has_names(cells: Cells) -> bool:
    """Whether nearly every row has a text of its own."""
    if cells.kind != "text":
        return False
    count = len(np.unique(cells.values[cells.is_there].astype(str)))
    return count > max(MOST_CATEGORIES, _SHARE_OF_NAMES * int(cells.is_there.sum()))
