"""One column of a table as inputs: numbers, parts of dates, categories, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .cells import Cells, Kind, days_to_moments

MOST_CATEGORIES = 50
"""The largest number of categories with an input each; more of them have the means of their targets."""

_FOLDS = 5
_FEWEST_MISSING = 10
"""How many cells have to be missing, and to be there, for an input that marks them."""
_PARTS = ("year", "month", "day", "weekday", "hour")


@dataclass(frozen=True)
class InputColumn:
    """How one column becomes numbers.

    :param fill: what replaces missing cells.
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
        fewest = min(len(values), int((~cells.is_there).sum()))
        marks = marks_missing and fewest >= _FEWEST_MISSING
        if cells.kind == "text":
            categories, counts = np.unique(values.astype(str), return_counts=True)
            return cls(name, "text", str(categories[counts.argmax()]), tuple(map(str, categories)), marks_missing=marks)
        fill = float(np.round(values.mean()) if cells.kind == "boolean" else np.median(values))
        parts: tuple[str, ...] = ()
        if cells.kind == "date":
            each = _parts_of_dates(values)
            parts = tuple(part for part in _PARTS if len(np.unique(each[part])) > 1)
        return cls(name, cells.kind, fill, (), cells.date_format, parts, unit=cells.unit, marks_missing=marks)

    @property
    def has_many_categories(self) -> bool:
        """Whether categories are too many for an input each."""
        return len(self.categories) > MOST_CATEGORIES

    def coded(self, cells: Cells, y: NDArray[Any], task: str) -> tuple[Self, NDArray[np.float64]]:
        """The rule with codes of categories, and the numbers of the rows it is learned from.

        Of these a code comes from other folds of rows, so that no row sees its own target.

        :param y: targets (N,) or (N, T), or class numbers.

        Source: Micci-Barreca, 2001.
        """
        from sklearn.preprocessing import TargetEncoder

        values = np.where(cells.is_there, cells.values, self.fill).astype(str)[:, None]
        known = np.asarray(self.categories)[:, None]
        counts = np.log1p((np.searchsorted(self.categories, values[:, 0])[:, None] == np.arange(len(known))).sum(0))
        of_rows, of_codes, others = [], [], []
        for target in y.reshape(len(y), -1).T:
            there = ~np.isnan(target) if target.dtype.kind == "f" else np.ones(len(target), bool)
            kind = "continuous" if task == "regression" else "auto"
            encoder = TargetEncoder(target_type=kind, cv=_FOLDS, random_state=0)
            crossed = encoder.fit_transform(values[there], target[there])
            rows = encoder.transform(values)
            rows[there] = crossed
            of_rows.append(rows)
            of_codes.append(encoder.transform(known))
            others.append(np.atleast_1d(encoder.target_mean_))
        codes = np.column_stack([*of_codes, counts])
        rest = np.append(np.concatenate(others), 0.0)
        learned = replace(self, codes=tuple(map(tuple, [*codes.tolist(), rest.tolist()])))
        places = np.searchsorted(self.categories, values[:, 0])
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

    def is_known(self, cells: Cells) -> NDArray[np.bool_]:
        """Which cells of text have a category that the table that was learned from had."""
        return np.isin(cells.values.astype(str), self.categories)

    def encoded(self, cells: Cells, *, impute: bool) -> NDArray[np.float64]:
        """The numbers of cells, (N, number of inputs), with NaN for what is missing and is not imputed.

        Other categories than those that are known have zeros, which is far from all of them.
        """
        if self.kind == "text":
            numbers = self._of_categories(cells)
        else:
            values = np.where(cells.is_there, cells.values, self.fill).astype(np.float64)
            each = _parts_of_dates(values) if self.parts else {}
            numbers = np.column_stack([values, *(each[part] for part in self.parts)])
        if not impute:
            numbers[~cells.is_there] = np.nan
        return self._marked(numbers, cells)

    def _of_categories(self, cells: Cells) -> NDArray[np.float64]:
        values = np.where(cells.is_there, cells.values, self.fill).astype(str)
        places = np.minimum(np.searchsorted(self.categories, values), len(self.categories) - 1)
        is_known = np.asarray(self.categories)[places] == values
        if self.codes:
            return np.asarray(self.codes)[np.where(is_known, places, len(self.categories))]
        numbers = (places[:, None] == np.arange(len(self.categories))).astype(np.float64)
        numbers[~is_known] = 0.0
        if len(self.categories) > 2:
            return numbers
        return np.where(is_known, numbers[:, -1], 0.5)[:, None]

    def _marked(self, numbers: NDArray[np.float64], cells: Cells) -> NDArray[np.float64]:
        if not self.marks_missing:
            return numbers
        return np.column_stack([numbers, (~cells.is_there).astype(np.float64)])

    def to_json(self) -> dict[str, Any]:
        """The rule as numbers, strings, lists and dictionaries."""
        lists = {"categories": list(self.categories), "parts": list(self.parts), "codes": list(map(list, self.codes))}
        return asdict(self) | lists

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """The rule that :meth:`to_json` gave."""
        tuples = {name: tuple(record.get(name, ())) for name in ("categories", "parts")}
        return cls(**{**record, **tuples, "codes": tuple(map(tuple, record.get("codes", ())))})


def _parts_of_dates(days: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """The parts of dates that are given by days since 1970."""
    moments = days_to_moments(days)
    fields = zip(_PARTS, (moments.year, moments.month, moments.day, moments.day_of_week, moments.hour), strict=True)
    parts = {part: np.asarray(field, dtype=np.float64) for part, field in fields}
    return parts | {"hour": parts["hour"] + np.asarray(moments.minute) / 60.0}
