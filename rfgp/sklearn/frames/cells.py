"""What the cells of a column are: numbers, booleans, dates or text, and which of them are none of these."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..._support import optional

if TYPE_CHECKING:
    import pandas

Kind = Literal["integer", "number", "boolean", "date", "text", "empty"]

MISSING_WORDS = ("", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "nil", "?", "-", "--", ".")
"""Cells without a value, in small letters."""

PRESENT, MISSING, INFINITE, WRONG = range(4)
"""What a cell may be: a value, none, an infinite number, or text where numbers or dates are wanted."""

_BOOLEANS = {"true": 1.0, "false": 0.0}
_SHARE = 0.5
"""The share of cells that are numbers, or dates, from which on a column has these."""
_EPOCH = np.datetime64("1970-01-01", "us")
_DAY = np.timedelta64(1, "D") / np.timedelta64(1, "us")
_GROUPS = " '\u00a0\u202f\u2009"
_SIGN, _EXPONENT = "[+-]?", "(?:[eE][+-]?[0-9]+)?"
_INFINITE = "(?i:[+-]?inf(?:inity)?)"
_DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y", "%d %b %Y", "%d-%b-%Y", "%b %d, %Y")
DATE_FORMATS = ("ISO8601", *(f"{day}{time}" for time in ("", " %H:%M", " %H:%M:%S") for day in _DAYS))
_WITH_UNIT = (
    r"^(?P<sign>[+\-\u2212]?)\s*(?P<before>[$\u20ac\u00a3\u00a5]?)\s*"
    r"(?P<number>[0-9](?:[0-9.,'\u00a0\u202f\u2009 ]*[0-9])?)"
    r"\s*(?P<behind>[%\u00b0$\u20ac\u00a3\u00a5]?[A-Za-z\u00b5]{0,8}[\u00b2\u00b3]?)$"
)
_SHARE_OF_UNIT = 0.9
_RANGE = r"[<>=\u2264\u2265]{1,2}\s*[0-9.,]+|[0-9.,]+\s*(?:[-\u2013]|to|\.\.)\s*[0-9.,]+|[0-9.,]+\s*\+"
_SHARE_OF_RANGES, _MOST_GROUPS = 0.02, 50
_LIKE_A_DATE = re.compile(r"[0-9]{1,4}[-/. ][0-9A-Za-z]{1,3}[-/. ][0-9]{1,4}.*|[A-Za-z]{3} [0-9]{1,2}, [0-9]{4}.*")


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells (N,) of one column: floats with NaN, or strings with "", for what is not there.

    ``states`` has PRESENT, MISSING, INFINITE or WRONG for every cell, and ``shown`` the cells as they were written.
    """

    kind: Kind
    values: NDArray[Any]
    states: NDArray[np.int8]
    shown: Any
    date_format: str = ""
    unit: str = ""

    @property
    def is_there(self) -> NDArray[np.bool_]:
        """Whether cells have values."""
        return self.states == PRESENT

    def taken(self, rows: NDArray[Any]) -> Cells:
        """The cells of some rows."""
        return Cells(
            self.kind, self.values[rows], self.states[rows], self.shown.iloc[rows], self.date_format, self.unit
        )


def decimal_of(frame: pandas.DataFrame, name: str, learned: str | None = None) -> str | None:
    """The decimal point or comma of the text in a table, by the numbers that can be read in one way only."""
    texts = [without_unit(cells) for _, column in frame.items() if (cells := _strings(column)) is not None]
    with_commas = [cells[cells.str.contains(",", regex=False)] for cells in texts]
    if learned != "," and not any(len(cells) for cells in with_commas):
        return "." if any(cells.str.contains(".", regex=False).any() for cells in texts) else learned
    points = sum(_count_of_clear(cells, ".", ",") for cells in texts)
    commas = sum(_count_of_clear(cells, ",", ".") for cells in with_commas)
    if learned is not None and points == commas:
        return learned
    unclear = [cell for cells in with_commas for cell in cells[cells.str.fullmatch(_thousands(","))][:1]]
    if unclear and not points and not commas:
        raise ValueError(
            f"expected numbers of {name} that can be read in one way, got {unclear[0]!r}, which may have a decimal "
            'comma, or one between thousands; write such numbers in one way, or read the file with decimal="," or "."'
        )
    return "," if commas > points else "."


def _count_of_clear(cells: pandas.Series, mark: str, other: str) -> int:
    """The number of cells in which a mark can only be the decimal point or comma."""
    is_number = cells.str.fullmatch(_number(mark, other)) & cells.str.contains(mark, regex=False)
    return int((is_number & ~cells.str.fullmatch(_thousands(mark))).sum())


def _number(decimal: str, group: str) -> str:
    """The pattern of a number in text with thousands or without."""
    point = re.escape(decimal)
    digits = f"[0-9]+|[0-9]{{1,3}}(?:[{re.escape(group)}{_GROUPS}][0-9]{{3}})+"
    return f"{_SIGN}(?:(?:{digits})(?:{point}[0-9]*)?|{point}[0-9]+){_EXPONENT}"


def _thousands(group: str) -> str:
    """The pattern of a number that may have a mark between thousands."""
    return f"{_SIGN}[1-9][0-9]{{0,2}}(?:{re.escape(group)}[0-9]{{3}})+"


def recognized(column: pandas.Series, decimal: str, words: Collection[str] = MISSING_WORDS) -> Cells:
    """The cells of a column, as what most of them are; those with one of the words, in small letters, have no value."""
    cells = _strings(column)
    if cells is None:
        return _typed(column)
    plain = _plain_numbers(column, cells) if decimal == "." else None
    if plain is not None:
        return plain
    cells, missing = _present(cells, words)
    there = ~missing
    if not there.any():
        return Cells("empty", np.full(len(cells), np.nan), _states(missing), column)
    count = int(there.sum())
    if bool(cells[there].str.lower().isin(list(_BOOLEANS)).all()):
        return _booleans(column, cells, missing)
    numbers = _numbers(column, cells, missing, decimal)
    if int((numbers.states == WRONG).sum()) <= (1.0 - _SHARE) * count:
        return _text(column, cells, missing) if _has_ranges(cells[there], numbers.states[there] == WRONG) else numbers
    form = _date_format(cells[there], str(column.name))
    if form:
        return _dates(column, cells, missing, form)
    unit = unit_of(cells[there])
    if unit:
        numbers = _numbers(column, without_unit(cells, unit), missing, decimal)
        if int((numbers.states == WRONG).sum()) <= (1.0 - _SHARE) * count:
            return replace(numbers, unit=unit)
    return _text(column, cells, missing)


def read_as(
    column: pandas.Series,
    kind: Kind,
    decimal: str,
    date_format: str,
    unit: str = "",
    words: Collection[str] = MISSING_WORDS,
) -> Cells:
    """The cells of a column, as what they were in another table."""
    cells = _strings(column)
    if cells is None:
        typed = _typed(column)
        is_alike = typed.kind == kind or {typed.kind, kind} <= {"integer", "number", "boolean"}
        if is_alike or typed.kind == "empty":
            return Cells(kind, typed.values, typed.states, column, date_format, unit)
        cells = column.astype(str).where(typed.is_there, "")
    cells, missing = _present(cells, words)
    if kind == "text":
        return _text(column, cells, missing)
    if kind == "boolean":
        return _booleans(column, cells, missing)
    if kind == "date":
        return _dates(column, cells, missing, date_format)
    return replace(_numbers(column, without_unit(cells, unit) if unit else cells, missing, decimal), unit=unit)


def unit_of(cells: pandas.Series) -> str:
    """What stands before or behind the numbers of a column, where it is the same for nearly all of them."""
    parts = cells.str.extract(_WITH_UNIT, expand=True)
    units = (parts["before"].fillna("") + parts["behind"].fillna(""))[parts["number"].notna()]
    if not len(units):
        return ""
    best = units.value_counts()
    return str(best.index[0]) if best.index[0] and best.iloc[0] >= _SHARE_OF_UNIT * len(cells) else ""


def without_unit(cells: pandas.Series, unit: str | None = None) -> pandas.Series:
    """Cells without what stands before or behind numbers, where that is the unit; default: any unit."""
    cells = cells.str.strip()
    parts = cells.str.extract(_WITH_UNIT, expand=True)
    is_number = parts["number"].notna()
    if unit is not None:
        found = parts["before"].fillna("") + parts["behind"].fillna("")
        is_number &= (found == unit) | (found == "")
    return cells.where(~is_number, parts["sign"].fillna("") + parts["number"].fillna(""))


def days_to_moments(days: NDArray[np.float64]) -> pandas.DatetimeIndex:
    """Moments from days since the first of January 1970."""
    pandas = optional.require("pandas", "pandas", "tables")
    return pandas.DatetimeIndex(_EPOCH + np.round(days * _DAY).astype("timedelta64[us]"))


def _strings(column: pandas.Series) -> pandas.Series | None:
    """A column of text, or of Python's objects, as strings with "" for what is not there; None for other types."""
    pandas = optional.require("pandas", "pandas", "tables")
    column = _without_arrow(column)
    if isinstance(column.dtype, pandas.CategoricalDtype):
        column = column.astype(object)
    if column.dtype == object:
        bad = [cell for cell in column if isinstance(cell, Iterable) and not isinstance(cell, str)]
        if bad:
            raise ValueError(
                f"expected single values in column {str(column.name)!r}, got {len(bad)} cells such as "
                f"{cut(repr(bad[0]))}; leave the column out"
            )
        there = column.notna()
        return column.where(there, "").map(str).astype("str")
    return column.fillna("").astype("str") if isinstance(column.dtype, pandas.StringDtype) else None


def _without_arrow(column: pandas.Series) -> pandas.Series:
    """A column of Arrow's types in those of NumPy, or of Python's objects."""
    pandas = optional.require("pandas", "pandas", "tables")
    if not isinstance(column.dtype, pandas.ArrowDtype):
        return column
    values = column.array.__arrow_array__().to_pandas(date_as_object=False)
    values.index = column.index
    return values.rename(column.name)


def _present(cells: pandas.Series, words: Collection[str]) -> tuple[pandas.Series, NDArray[np.bool_]]:
    """Cells without blanks around them, and which of them are missing."""
    cells = cells.str.strip()
    return cells, cells.str.lower().isin(["", *words]).to_numpy(bool)


def _has_ranges(cells: pandas.Series, is_wrong: NDArray[np.bool_]) -> bool:
    """Whether cells beside numbers are ranges of few kinds, such as 2-10 or 100+: then all are names of groups."""
    wrong = cells[is_wrong]
    if len(wrong) < _SHARE_OF_RANGES * len(cells) or wrong.nunique() == len(wrong) or cells.nunique() > _MOST_GROUPS:
        return False
    return bool(wrong.str.fullmatch(_RANGE).mean() >= _SHARE_OF_UNIT)


def _states(missing: NDArray[np.bool_]) -> NDArray[np.int8]:
    return np.where(missing, MISSING, PRESENT).astype(np.int8)


def _text(column: pandas.Series, cells: pandas.Series, missing: NDArray[np.bool_]) -> Cells:
    return Cells("text", cells.where(~missing, "").to_numpy(object), _states(missing), column)


def _booleans(column: pandas.Series, cells: pandas.Series, missing: NDArray[np.bool_]) -> Cells:
    values = cells.str.lower().map(_BOOLEANS | {"1": 1.0, "0": 0.0}).to_numpy(np.float64)
    states = np.where(missing, MISSING, np.where(np.isnan(values), WRONG, PRESENT)).astype(np.int8)
    return Cells("boolean", values, states, column)


def _numbers(column: pandas.Series, cells: pandas.Series, missing: NDArray[np.bool_], decimal: str) -> Cells:
    group = "," if decimal == "." else "."
    plain = cells.str.replace("\u2212", "-", regex=False)
    is_number = plain.str.fullmatch(_number(decimal, group)).to_numpy(bool) & ~missing
    is_infinite = plain.str.fullmatch(_INFINITE).to_numpy(bool, copy=True)
    digits = plain[is_number].str.replace(f"[{re.escape(group)}{_GROUPS}]", "", regex=True)
    if decimal == ",":
        digits = digits.str.replace(",", ".", regex=False)
    values = np.full(len(cells), np.nan)
    values[is_number] = digits.to_numpy(object).astype(np.float64)
    is_infinite |= np.isinf(values)
    states = np.select([missing, is_infinite, is_number], [MISSING, INFINITE, PRESENT], WRONG).astype(np.int8)
    values[states != PRESENT] = np.nan
    is_whole = bool(digits.str.fullmatch("[+-]?[0-9]{1,18}").all())
    return Cells("integer" if is_whole else "number", values, states, column)


def _plain_numbers(column: pandas.Series, cells: pandas.Series) -> Cells | None:
    """The cells of a column where all are finite numbers as a program writes them, which is quickly seen."""
    try:
        values = cells.astype(np.float64).to_numpy(copy=True)
    except ValueError:
        return None
    if not bool(np.isfinite(values).all()):
        return None
    is_whole = bool((values == np.round(values)).all()) and bool(cells.str.fullmatch("[+-]?[0-9]{1,18}").all())
    return Cells("integer" if is_whole else "number", values, np.zeros(len(values), np.int8), column)


def _date_format(cells: pandas.Series, name: str) -> str:
    """How most of the cells are written as dates; empty where they are none."""
    pandas = optional.require("pandas", "pandas", "tables")
    if _LIKE_A_DATE.fullmatch(cells.iloc[0]) is None:
        return ""
    shares: dict[str, float] = {}
    for form in DATE_FORMATS:
        share = float(pandas.to_datetime(cells, format=form, errors="coerce", utc=True).notna().mean())
        if share > _SHARE:
            shares[form] = share
        if share == 1.0 and form == "ISO8601":
            break
    best = [form for form, share in shares.items() if share == max(shares.values())]
    if len(best) > 1:
        raise ValueError(
            f"expected dates in column {name!r} that can be read in one way, got {cells.iloc[0]!r} and others, where "
            "the month may be the first or the second number; write year-month-day, or leave it out"
        )
    return best[0] if best else ""


def _dates(column: pandas.Series, cells: pandas.Series, missing: NDArray[np.bool_], form: str) -> Cells:
    pandas = optional.require("pandas", "pandas", "tables")
    moments = pandas.to_datetime(cells.where(~missing, None), format=form, errors="coerce", utc=True)
    values = _days(moments.dt.tz_localize(None))
    states = np.where(missing, MISSING, np.where(np.isnan(values), WRONG, PRESENT)).astype(np.int8)
    return Cells("date", values, states, column, form)


def _days(moments: pandas.Series) -> NDArray[np.float64]:
    """Days since the first of January 1970, and NaN for what is not there."""
    stamps = moments.to_numpy("datetime64[us]")
    days: NDArray[np.float64] = (stamps - _EPOCH).astype(np.float64) / _DAY
    days[np.isnat(stamps)] = np.nan
    return days


def _typed(column: pandas.Series) -> Cells:
    """The cells of a column of numbers, booleans or dates."""
    pandas = optional.require("pandas", "pandas", "tables")
    column = _without_arrow(column)
    types = pandas.api.types
    form = ""
    if types.is_bool_dtype(column.dtype):
        kind: Kind = "boolean"
    elif types.is_integer_dtype(column.dtype):
        kind = "integer"
    elif types.is_float_dtype(column.dtype):
        kind = "number"
    elif types.is_datetime64_any_dtype(column.dtype):
        kind, form = "date", "ISO8601"
    else:
        raise ValueError(
            f"expected numbers, booleans, dates or text in column {str(column.name)!r}, got {column.dtype}; convert "
            "it, or leave it out"
        )
    if kind == "date":
        moments = column if getattr(column.dtype, "tz", None) is None else column.dt.tz_convert(None)
        values = _days(moments)
    else:
        values = column.to_numpy(np.float64, na_value=np.nan)
    states = np.select([np.isnan(values), np.isinf(values)], [MISSING, INFINITE], PRESENT).astype(np.int8)
    if not (states == PRESENT).any():
        kind = "empty"
    return Cells(kind, np.where(states == PRESENT, values, np.nan), states, column, form)


def cut(text: str, most: int = 43) -> str:
    """A text in at most so many characters."""
    return text if len(text) <= most else text[: most - 3] + "..."
