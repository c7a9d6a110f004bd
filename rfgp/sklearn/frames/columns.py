"""One column of a table as inputs: numbers, parts of dates, categories, and what is missing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold
from sklearn.preprocessing import TargetEncoder

from .cells import Cells, Kind, days_to_moments

MOST_CATEGORIES = 50
"""The largest number of categories with an input each; more of them have the means of their targets."""
FEWEST_LEVELS, _MOST_LEVELS, _MOST_NUMBERS = 11, 300, 6_000_000
"""A kernel on levels takes so many categories with an input each, and so many numbers of them in all rows."""

_FOLDS = 5
_SHARE_OF_NAMES = 0.5
"""The share of different values in a column of text from which on these are names of rows."""
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

    def coded(self, cells: Cells, y: NDArray[Any], task: str) -> tuple[Self, NDArray[np.float64]]:
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
            kind = "continuous" if task == "regression" else "auto"
            encoder = TargetEncoder(target_type=kind).fit(values[there], target[there])
            rows = encoder.transform(values)
            numbers = np.flatnonzero(there)
            for others, fold in KFold(_FOLDS, shuffle=True, random_state=0).split(numbers):
                known_rows, left_out = numbers[others], numbers[fold]
                of_fold = TargetEncoder(target_type=kind).fit(values[known_rows], target[known_rows])
                rows[left_out] = of_fold.transform(values[left_out])
            of_rows.append(rows)
            of_codes.append(encoder.transform(known))
            of_others.append(np.atleast_1d(encoder.target_mean_))
        codes = np.column_stack([*of_codes, counts])
        rest = np.append(np.concatenate(of_others), 0.0)
        learned = replace(self, codes=tuple(map(tuple, [*codes.tolist(), rest.tolist()])))
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

        Of text, a category that is not known has zeros, which is far from all others; the middle, of two categories;
        or the mean of all targets.
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


def learn(
    cells: Mapping[str, Cells],
    y: NDArray[Any] | None,
    task: str,
    *,
    marks_missing: bool,
    most_categories: int = MOST_CATEGORIES,
) -> tuple[tuple[InputColumn, ...], NDArray[np.float64]]:
    """The rules for columns, and the inputs (N, d) that they make of the rows that they are learned from.

    :param y: targets (N,) or (N, T), or class numbers; None for none.
    :param most_categories: the largest number of categories with an input each.
    :raises ValueError: for columns of more categories without targets.
    """
    rules, parts = [], []
    for name, column in cells.items():
        rule = InputColumn.learned(name, column, marks_missing)
        has_many = len(rule.categories) > max(2, most_categories)
        if has_many and y is None:
            raise ValueError(
                f"expected at most {most_categories} different values in a column of text without a target, got "
                f"{len(rule.categories):,} in {name!r}, such as {rule.categories[0]!r}; name the target, make numbers "
                "of them, or leave the column out"
            )
        if y is not None and has_many:
            rule, part = rule.coded(column, y, task)
        else:
            part = rule.encoded(column, impute=marks_missing)
        rules.append(rule)
        parts.append(part)
    return tuple(rules), np.concatenate(parts, axis=-1)


def most_levels(num_rows: int) -> int:
    """The largest number of categories with an input each, for a kernel on levels."""
    return max(MOST_CATEGORIES, min(_MOST_LEVELS, _MOST_NUMBERS // max(num_rows, 1)))


def levels(columns: Collection[InputColumn]) -> list[list[int]]:
    """The inputs of every column of text that has many of them."""
    groups, start = [], 0
    for column in columns:
        count = len(column.names) - column.marks_missing
        if column.kind == "text" and not column.codes and count >= FEWEST_LEVELS:
            groups.append(list(range(start, start + count)))
        start += len(column.names)
    return groups


def unseen_categories(columns: Collection[InputColumn], cells: Mapping[str, Cells]) -> list[str]:
    """The categories of every row that columns of text do not know, such as "region=West"."""
    rows = [""] * max((len(held.values) for held in cells.values()), default=0)
    for column in columns:
        held = cells[column.name]
        for row in np.flatnonzero(held.is_there & ~column.is_known(held)):
            rows[row] = ", ".join(filter(None, [rows[row], f"{column.name}={held.values[row]}"]))
    return rows


def is_constant(cells: Cells) -> bool:
    """Whether all values that are there are the same."""
    values = cells.values[cells.is_there]
    return len(values) > 0 and bool((values == values[0]).all())


def has_names(cells: Cells) -> bool:
    """Whether nearly every row has a text of its own."""
    if cells.kind != "text":
        return False
    count = len(np.unique(cells.values[cells.is_there].astype(str)))
    return count > max(MOST_CATEGORIES, _SHARE_OF_NAMES * int(cells.is_there.sum()))
