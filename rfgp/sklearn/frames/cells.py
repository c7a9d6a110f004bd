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

_NUMERIC = ("integer", "number", "boolean")
_BOOLEANS = {"true": 1.0, "false": 0.0}
_SHARE = 0.5
"""The share of cells that are numbers, or dates, from which on a column has these."""
_SOME_CELLS = 1000
"""Of so many cells one has to be a date of a format which most cells may have."""
_EPOCH = np.datetime64("1970-01-01", "us")
_DAY = np.timedelta64(1, "D") / np.timedelta64(1, "us")
_GROUPS = " '\u00a0\u202f\u2009"
_SIGN, _EXPONENT, _WHOLE = "[+-]?", "(?:[eE][+-]?[0-9]+)?", "[+-]?[0-9]{1,18}"
_INFINITE = "(?i:[+-]?inf(?:inity)?)"
_DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y", "%d %b %Y", "%d-%b-%Y", "%b %d, %Y")
_DATE_FORMATS = ("ISO8601", *(f"{day}{time}" for time in ("", " %H:%M", " %H:%M:%S") for day in _DAYS))
_LIKE_A_DATE = re.compile(r"[0-9]{1,4}[-/. ][0-9A-Za-z]{1,3}[-/. ][0-9]{1,4}.*|[A-Za-z]{3} [0-9]{1,2}, [0-9]{4}.*")
_WITH_UNIT = (
    r"^(?P<sign>[+\-\u2212]?)\s*(?P<before>[$\u20ac\u00a3\u00a5]?)\s*"
    r"(?P<number>[0-9](?:[0-9.,'\u00a0\u202f\u2009 ]*[0-9])?)"
    r"\s*(?P<behind>[%\u00b0$\u20ac\u00a3\u00a5]?[A-Za-z\u00b5]{0,8}[\u00b2\u00b3]?)$"
)
_SHARE_OF_UNIT = 0.9
_RANGE = r"[<>=\u2264\u2265]{1,2}\s*[0-9.,]+|[0-9.,]+\s*(?:[-\u2013]|to|\.\.)\s*[0-9.,]+|[0-9.,]+\s*\+"
_SHARE_OF_RANGES, _MOST_GROUPS = 0.02, 50
_CODE = re.compile("(?:.*[ _.-])?(?:zip|zip[ _-]?codes?|post[ _-]?codes?|postal[ _-]?codes?|plz)", re.IGNORECASE)
"""Names of columns whose numbers are names of places."""


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

    @property
    def is_constant(self) -> bool:
        """Whether all values that are there are the same."""
        values = self.values[self.is_there]
        return len(values) > 0 and bool((values == values[0]).all())

    def taken(self, rows: NDArray[Any]) -> Cells:
        """The cells of some rows."""
        return replace(self, values=self.values[rows], states=self.states[rows], shown=self.shown.iloc[rows])


def decimal_of(frame: pandas.DataFrame, name: str, learned: str | None = None) -> str | None:
    """The decimal point or comma of the text in a table, by the numbers that can be read in one way only."""
    texts = [without_unit(cells) for _, column in frame.items() if (cells := _strings(column)) is not None]
    with_commas = [cells[cells.str.contains(",", regex=False)] for cells in texts]
    if learned != "," and not any(len(cells) for cells in with_commas):
        return "." if any(cells.str.contains(".", regex=False).any() for cells in texts) else learned
    points = sum(_count_of_clear(cells, ".") for cells in texts)
    commas = sum(_count_of_clear(cells, ",") for cells in with_commas)
    if learned is not None and points == commas:
        return learned
    unclear = [cell for cells in with_commas for cell in cells[cells.str.fullmatch(_thousands(","))][:1]]
    if unclear and not points and not commas:
        raise ValueError(
            f"expected numbers of {name} that can be read in one way, got {unclear[0]!r}, which may have a decimal "
            'comma, or one between thousands; write such numbers in one way, or read the file with decimal="," or "."'
        )
    return "," if commas > points else "."


def recognized(column: pandas.Series, decimal: str, words: Collection[str] = MISSING_WORDS) -> Cells:
    """The cells of a column, as what most of them are; those with one of the words, in small letters, have no value.

    Integers under a name such as zip are text.
    """
    strings = _strings(column)
    if strings is None:
        found = _typed(column)
    elif decimal != "." or (found := _plain_numbers(column, strings)) is None:  # type: ignore[assignment]
        cells, missing = _present(strings, words)
        found = read_as(column, *_kind_of(cells[~missing], decimal, str(column.name)), decimal, words)
    is_code = found.kind == "integer" and _CODE.fullmatch(str(column.name)) is not None
    return read_as(column, "text", "", "", decimal, words) if is_code else found


def read_as(
    column: pandas.Series,
    kind: Kind,
    date_format: str = "",
    unit: str = "",
    decimal: str = ".",
    words: Collection[str] = MISSING_WORDS,
) -> Cells:
    """The cells of a column, as what they were in another table."""
    strings = _strings(column)
    if strings is None:
        typed = _typed(column)
        if typed.kind in (kind, "empty") or {typed.kind, kind} <= set(_NUMERIC):
            return replace(typed, kind=kind, date_format=date_format, unit=unit)
        strings = column.astype(str).where(typed.is_there, "")
    cells, missing = _present(strings, words)
    if kind == "text":
        states = np.where(missing, MISSING, PRESENT).astype(np.int8)
        return Cells(kind, cells.where(~missing, "").to_numpy(object), states, column)
    if kind == "date":
        form = _own_format(cells[~missing], date_format, str(column.name))
        values = _days(_moments(cells.where(~missing, None), form).dt.tz_localize(None))
    elif kind == "boolean":
        values = cells.str.lower().map(_BOOLEANS | {"1": 1.0, "0": 0.0}).to_numpy(np.float64, copy=True)
    else:
        values = _numbers(without_unit(cells, unit) if unit else cells, decimal)
    return _of_floats(kind, values, missing, column, date_format, unit)


def _kind_of(cells: pandas.Series, decimal: str, name: str) -> tuple[Kind, str, str]:
    """What most cells of text are, with the format of dates and the unit of numbers."""
    if not len(cells):
        return "empty", "", ""
    if bool(cells.str.lower().isin(list(_BOOLEANS)).all()):
        return "boolean", "", ""
    kind, form, unit = _number_kind(cells, decimal), "", ""
    if kind is None and (form := _date_format(cells, name)):
        kind = "date"
    if kind is None and (unit := unit_of(cells)):
        kind = _number_kind(without_unit(cells, unit), decimal)
    return ("text", "", "") if kind is None else (kind, form, unit)


def _number_kind(cells: pandas.Series, decimal: str) -> Kind | None:
    """Whether most cells are numbers, or names of groups beside numbers; None where they are something else."""
    values = _numbers(cells, decimal)
    is_wrong = np.isnan(values)
    if is_wrong.mean() > 1.0 - _SHARE:
        return None
    if _has_ranges(cells, is_wrong):
        return "text"
    whole = _digits(cells[np.isfinite(values)], decimal).str.fullmatch(_WHOLE)
    return "integer" if bool(whole.all()) else "number"


def _has_ranges(cells: pandas.Series, is_wrong: NDArray[np.bool_]) -> bool:
    """Whether cells beside numbers are ranges of few kinds, such as 2-10 or 100+: then all are names of groups."""
    wrong = cells[is_wrong]
    if len(wrong) < _SHARE_OF_RANGES * len(cells) or wrong.nunique() == len(wrong) or cells.nunique() > _MOST_GROUPS:
        return False
    return bool(wrong.str.fullmatch(_RANGE).mean() >= _SHARE_OF_UNIT)


def _number(decimal: str) -> str:
    """The pattern of a number in text with thousands or without."""
    point, group = re.escape(decimal), "." if decimal == "," else ","
    digits = f"[0-9]+|[0-9]{{1,3}}(?:[{re.escape(group)}{_GROUPS}][0-9]{{3}})+"
    return f"{_SIGN}(?:(?:{digits})(?:{point}[0-9]*)?|{point}[0-9]+){_EXPONENT}"


def _thousands(group: str) -> str:
    """The pattern of a number that may have a mark between thousands."""
    return f"{_SIGN}[1-9][0-9]{{0,2}}(?:{re.escape(group)}[0-9]{{3}})+"


def _count_of_clear(cells: pandas.Series, mark: str) -> int:
    """The number of cells in which a mark can only be the decimal point or comma."""
    is_number = cells.str.fullmatch(_number(mark)) & cells.str.contains(mark, regex=False)
    return int((is_number & ~cells.str.fullmatch(_thousands(mark))).sum())


def _digits(cells: pandas.Series, decimal: str) -> pandas.Series:
    """Numbers in text as Python writes them."""
    group = "." if decimal == "," else ","
    digits = cells.str.replace(f"[{re.escape(group)}{_GROUPS}]", "", regex=True)
    return digits.str.replace("\u2212", "-", regex=False).str.replace(decimal, ".", regex=False)


def _numbers(cells: pandas.Series, decimal: str) -> NDArray[np.float64]:
    """The numbers in text, also infinite ones, and NaN for other text."""
    plain = cells.str.replace("\u2212", "-", regex=False)
    is_number = plain.str.fullmatch(_number(decimal)).to_numpy(bool)
    is_infinite = plain.str.fullmatch(_INFINITE).to_numpy(bool)
    values = np.full(len(cells), np.nan)
    values[is_number] = _digits(plain[is_number], decimal).to_numpy(object).astype(np.float64)
    values[is_infinite] = np.inf
    return values


def _plain_numbers(column: pandas.Series, cells: pandas.Series) -> Cells | None:
    """The cells of a column where all are finite numbers as a program writes them, which is quickly seen."""
    try:
        values = cells.astype(np.float64).to_numpy(copy=True)
    except ValueError:
        return None
    if not bool(np.isfinite(values).all()):
        return None
    is_whole = bool((values == np.round(values)).all()) and bool(cells.str.fullmatch(_WHOLE).all())
    return Cells("integer" if is_whole else "number", values, np.zeros(len(values), np.int8), column)


def unit_of(cells: pandas.Series) -> str:
    """What stands before or behind the numbers of a column, where it is the same for nearly all of them."""
    parts = _around_numbers(cells)
    units = (parts["before"].fillna("") + parts["behind"].fillna(""))[parts["number"].notna()].value_counts()
    return str(units.index[0]) if len(units) and units.iloc[0] >= _SHARE_OF_UNIT * len(cells) else ""


def without_unit(cells: pandas.Series, unit: str | None = None) -> pandas.Series:
    """Cells without what stands before or behind numbers, where that is the unit; default: any unit."""
    cells = cells.str.strip()
    parts = _around_numbers(cells)
    is_number = parts["number"].notna()
    if unit is not None:
        is_number &= (parts["before"].fillna("") + parts["behind"].fillna("")).isin([unit, ""])
    return cells.where(~is_number, parts["sign"].fillna("") + parts["number"].fillna(""))


def _around_numbers(cells: pandas.Series) -> pandas.DataFrame:
    """The sign, the digits and what stands around them of every cell, by the different ones; NaN without a number."""
    places, different = cells.factorize()
    return different.to_series().str.extract(_WITH_UNIT, expand=True).take(places).set_axis(cells.index)


def _date_format(cells: pandas.Series, name: str) -> str:
    """How most of the cells are written as dates; empty where they are none."""
    if _LIKE_A_DATE.fullmatch(cells.iloc[0]) is None:
        return ""
    some = cells.iloc[:: 1 + len(cells) // _SOME_CELLS]
    likely = [form for form in _DATE_FORMATS if _moments(some, form).notna().any()]
    shares: dict[str, float] = {}
    for form in likely:
        shares[form] = float(_moments(cells, form).notna().mean())
        if shares.get("ISO8601") == 1.0:
            break
    most = max(shares.values(), default=0.0)
    best = [form for form, share in shares.items() if share == most > _SHARE]
    if len(best) > 1:
        raise ValueError(
            f"expected dates in column {name!r} that can be read in one way, got {cells.iloc[0]!r} and others, where "
            "the month may be the first or the second number; write year-month-day, or leave it out"
        )
    return best[0] if best else ""


def _own_format(cells: pandas.Series, learned: str, name: str) -> str:
    """How the cells of another table are written as dates: as those learned from, or as most of them can be read."""
    if not len(cells) or _moments(cells, learned).notna().mean() >= _SHARE:
        return learned
    return _date_format(cells, name) or learned


def _moments(cells: pandas.Series, form: str) -> pandas.Series:
    """Cells of a format of dates as moments."""
    pandas = optional.require("pandas", "pandas", "tables")
    return pandas.to_datetime(cells, format=form, errors="coerce", utc=True)


def _days(moments: pandas.Series) -> NDArray[np.float64]:
    """Days since the first of January 1970, and NaN for what is not there."""
    stamps = moments.to_numpy("datetime64[us]")
    days: NDArray[np.float64] = (stamps - _EPOCH).astype(np.float64) / _DAY
    days[np.isnat(stamps)] = np.nan
    return days


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


def _present(strings: pandas.Series, words: Collection[str]) -> tuple[pandas.Series, NDArray[np.bool_]]:
    """Cells without blanks around them, and which of them are missing."""
    cells = strings.str.strip()
    return cells, cells.str.lower().isin(["", *words]).to_numpy(bool)


def _typed(column: pandas.Series) -> Cells:
    """The cells of a column of numbers, booleans or dates."""
    values, types = _without_arrow(column), optional.require("pandas", "pandas", "tables").api.types
    kinds: list[tuple[Kind, Any]] = [
        ("boolean", types.is_bool_dtype),
        ("integer", types.is_integer_dtype),
        ("number", types.is_float_dtype),
        ("date", types.is_datetime64_any_dtype),
    ]
    kind = next((kind for kind, is_one in kinds if is_one(values.dtype)), None)
    if kind is None:
        raise ValueError(
            f"expected numbers, booleans, dates or text in column {str(column.name)!r}, got {values.dtype}; convert "
            "it, or leave it out"
        )
    if kind == "date":
        days = _days(values if getattr(values.dtype, "tz", None) is None else values.dt.tz_convert(None))
        return _of_floats(kind, days, np.isnan(days), column, "ISO8601", "")
    floats = values.to_numpy(np.float64, na_value=np.nan, copy=True)
    return _of_floats(kind, floats, np.isnan(floats), column, "", "")


def _of_floats(
    kind: Kind, values: NDArray[np.float64], missing: NDArray[np.bool_], shown: Any, form: str, unit: str
) -> Cells:
    """Cells of numbers, among which NaN is wrong where it is not missing."""
    states = np.select([missing, np.isinf(values), np.isnan(values)], [MISSING, INFINITE, WRONG], PRESENT)
    values[states != PRESENT] = np.nan
    kind = kind if (states == PRESENT).any() else "empty"
    return Cells(kind, values, states.astype(np.int8), shown, form, unit)


def cut(text: str, most: int = 43) -> str:
    """A text in at most so many characters."""
    return text if len(text) <= most else text[: most - 3] + "..."
