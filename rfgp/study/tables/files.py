"""Tables as they come: files of several formats and data frames, as named columns of cells."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._support import checks, optional
from ..._support.data_frames import as_pandas
from ...sklearn.frames.cells import MISSING_WORDS
from ...sklearn.frames.encoding import Encoding, tidy
from . import packed, text
from .formats import SEPARATORS, SUFFIXES, TEXT

if TYPE_CHECKING:
    import pandas

ROW_NAMES = "row names"
_NO_NAME = re.compile(
    r"[^A-Za-z]*[0-9][^A-Za-z]*(?:[eE][+-]?[0-9]+)?|[0-9]{4}-[0-9]{2}-[0-9]{2}[T ].*|[+-]?(?i:nan|inf)"
)


@dataclass(frozen=True)
class Reading:
    """How a file is to be read: separator, decimal point, header, sheet and encoding; None for what is recognized.

    ``missing_values`` are words of cells without a value, in any letters; None for the usual ones.
    """

    separator: str | None = None
    decimal: str | None = None
    header: bool | None = None
    sheet: str | int | None = None
    encoding: str | None = None
    missing_values: tuple[str, ...] | None = None

    @property
    def missing_words(self) -> tuple[str, ...]:
        """The words of cells without a value, in small letters."""
        return MISSING_WORDS if self.missing_values is None else tuple(map(str.lower, self.missing_values))

    def __post_init__(self) -> None:
        if self.missing_values is not None:
            words: object = self.missing_values
            if isinstance(words, str) or not isinstance(words, Sequence) or not all(isinstance(w, str) for w in words):
                raise ValueError(
                    f'expected words for missing_values, got {words!r}; pass a list, such as ["NA", "unknown"]'
                )
            object.__setattr__(self, "missing_values", tuple(word.strip() for word in self.missing_values))
        if self.separator is not None:
            is_one = isinstance(self.separator, str) and len(self.separator) == 1 and self.separator not in '"\r\n#'
            if not is_one and not (isinstance(self.separator, str) and self.separator in SEPARATORS):
                raise ValueError(
                    f"expected one character or one of {', '.join(SEPARATORS)} for separator, got {self.separator!r}; "
                    "choose one of these"
                )
        if self.decimal is not None:
            checks.choice("decimal", self.decimal, (".", ","))
        if self.header is not None:
            checks.flag("header", self.header)


AS_RECOGNIZED = Reading()


@dataclass(frozen=True, eq=False)
class Raw:
    """The columns of a table before anything is made of them, with what there is to say about the file."""

    name: str
    frame: pandas.DataFrame
    format: str
    notes: tuple[str, ...] = ()
    repeated: frozenset[str] = frozenset()
    index: str = ""
    reading: Reading = AS_RECOGNIZED


@dataclass(frozen=True)
class LearnedLayout:
    """How another file was read, the columns that a file is to have like it, row identifier and exposures."""

    reading: Reading = AS_RECOGNIZED
    names: tuple[str, ...] = ()
    index: str = ""
    exposure: Encoding | None = None
    """The rule of the column of exposures of counts."""

    def is_header(self, row: Sequence[Any]) -> bool:
        """Whether a row has all these names."""
        return bool(self.names) and set(self.names) <= set(map(tidy, row))


NOTHING_LEARNED = LearnedLayout()


def open_table(source: Any, reading: Reading, learned: LearnedLayout = NOTHING_LEARNED) -> Raw:
    """The columns of a file or a data frame."""
    pandas, source = optional.require("pandas", "pandas", "tables"), as_pandas(source, "source")
    if isinstance(source, pandas.DataFrame):
        return _indexed("the table", source, "a data frame")
    if not isinstance(source, str | os.PathLike):
        raise ValueError(f"expected a path or a data frame, got {type(source).__name__}; pass one of these")
    path = Path(source)
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    is_packed = suffixes[-1:] == [".gz"]
    suffix = "".join(suffixes[-2:-1] if is_packed else suffixes[-1:])
    if suffix not in SUFFIXES:
        raise ValueError(
            f"expected a file that ends in {', '.join(SUFFIXES)}, or .gz behind one of these, got {path.name!r}; "
            "convert it"
        )
    content, num_bytes = packed.content(path, is_packed)
    if suffix in TEXT:
        return _text(path.name, content, reading, learned)
    if reading.separator is not None or reading.decimal is not None:
        raise ValueError(f"expected separator and decimal for text files, got {path.name}; leave them out")
    if suffix in (".xlsx", ".xlsm"):
        return _workbook(path.name, content, reading, num_bytes)
    return _typed(path.name, content, num_bytes, is_parquet=suffix in (".parquet", ".pq"))


def _text(name: str, content: bytes, reading: Reading, learned: LearnedLayout) -> Raw:
    whole, encoding = text.decode(content, name, learned.reading.encoding)
    above, rest = text.parted(whole)
    separator = _separator(text.without_comments(rest), reading, learned)
    comment, rows = _rows_and_comment(above, rest, separator)
    cells = text.parsed(rows, separator, name)
    shown = next((kind for kind, character in SEPARATORS.items() if character == separator), separator)
    described = f"text in {encoding}, separator {shown}"
    header = learned.reading.header if reading.header is None else reading.header
    if header is None and learned.is_header(cells.iloc[0]):
        header = True
    is_names = len(comment) == cells.shape[1] and header is None and _is_data(cells.iloc[0])
    raw = _named(name, _under_names(cells, comment if is_names else None, header, name), described)
    return replace(raw, reading=Reading(separator, header=reading.header, encoding=encoding))


def _separator(rows: str, reading: Reading, learned: LearnedLayout) -> str:
    """What is between two cells: what is given, or was in the other file where this gives its names, or else fits."""
    given = SEPARATORS.get(reading.separator or "", reading.separator)
    learned_separator = learned.reading.separator
    if (
        given is None
        and learned_separator is not None
        and learned.is_header((text.sample_of(rows, learned_separator) or [[]])[0])
    ):
        return learned_separator
    return given or text.recognized_separator(rows)


def _rows_and_comment(above: list[str], rest: str, separator: str) -> tuple[list[str], str]:
    """The cells of the last comment above the rows that may have names, and all rows: some may begin with #."""
    pandas = optional.require("pandas", "pandas", "tables")
    sample = text.sample_of(text.without_comments(rest), separator)
    width = text.common_width(sample)
    comment: list[str] = []
    for place, line in enumerate(above):
        cells = (text.rows_of(line.lstrip("#").strip(), separator) or [[]])[0]
        if not sample or len(cells) != len(sample[0]):
            continue
        first = pandas.DataFrame([cells, sample[0]])
        if _is_data(first.iloc[1]) and not _has_names(first):
            rest = "\n".join([*above[place:], rest])
            break
        comment = cells
    return comment, text.without_comments(rest, lambda line: len(text.rows_of(line, separator)[0]) == width)


def _workbook(name: str, content: bytes, reading: Reading, num_bytes: int) -> Raw:
    pandas = optional.require("pandas", "pandas", "tables")
    optional.require("openpyxl", "openpyxl", "workbooks")
    packed.check_workbook(name, content, num_bytes)
    try:
        book = pandas.ExcelFile(io.BytesIO(content), engine="openpyxl")
    except Exception as error:  # a workbook is a zip file of XML files, each of which may be wrong
        raise _other_file("a workbook", name, error) from None
    sheets = book.sheet_names
    sheet = 0 if reading.sheet is None else reading.sheet
    if isinstance(sheet, str) and sheet not in sheets and sheet.isdecimal():
        sheet = int(sheet)
    if (sheet not in sheets) if isinstance(sheet, str) else not 0 <= sheet < len(sheets):
        raise ValueError(f"expected one of the sheets {', '.join(sheets)} of {name}, got {sheet!r}; choose one of them")
    try:
        packed.check_filled(name, book.book[sheet if isinstance(sheet, str) else sheets[sheet]])
        cells = pandas.read_excel(book, sheet_name=sheet, header=None, dtype=object)
    except Exception as error:  # as above
        raise _other_file("a workbook", name, error) from None
    cells = cells.dropna(how="all").dropna(how="all", axis=1)
    if not len(cells):
        raise ValueError(f"expected rows of data, got none in {name}; choose another sheet (--sheet)")
    cells = cells.astype(object).where(cells.notna(), "").set_axis(range(cells.shape[1]), axis=1)
    shown = sheet if isinstance(sheet, str) else sheets[sheet]
    described = f"sheet {shown!r} of {len(sheets)}" if len(sheets) > 1 else "a workbook"
    return _named(name, _under_names(cells.reset_index(drop=True), None, reading.header, name), described)


def _typed(name: str, content: bytes, num_bytes: int, is_parquet: bool) -> Raw:
    """Parquet and JSON lines, whose columns have names and types."""
    pandas = optional.require("pandas", "pandas", "tables")
    kind = "Parquet" if is_parquet else "JSON lines"
    if is_parquet:
        optional.require("pyarrow", "PyArrow", "Parquet")
    try:
        if is_parquet:
            frame = packed.parquet_frame(name, content, num_bytes)
        else:
            decoded, _ = text.decode(content, name)
            frame = pandas.DataFrame([dict(json.loads(line)) for line in decoded.splitlines() if line.strip()])
    except Exception as error:  # a damaged page gives errors of Arrow, and a line of JSON any
        raise _other_file(kind, name, error) from None
    return _indexed(name, frame, kind)


def _other_file(kind: str, name: str, error: Exception) -> Exception:
    """What to raise where a file is no such one: what is said of it already, or what another package says."""
    other = ValueError(f"expected {kind} in {name}, got another file ({error}); save it again")
    return error if checks.is_own(error) else other


def _indexed(name: str, frame: pandas.DataFrame, described: str) -> Raw:
    """A frame with its index as the first column, where it says more than the place of a row."""
    index = frame.index
    if index.nlevels > 1 or frame.columns.nlevels > 1:
        raise ValueError("expected a table with one index, got several levels; use reset_index()")
    plain = frame.reset_index(drop=True)
    if index.name is None and index.dtype.kind in "iu" and index.tolist() == list(range(len(index))):
        return _named(name, plain, described)
    plain.insert(0, ROW_NAMES if index.name is None else index.name, index, allow_duplicates=True)
    raw = _named(name, plain, described)
    return replace(raw, index=str(raw.frame.columns[0]))


def _under_names(
    cells: pandas.DataFrame, names: Sequence[Any] | None, header: bool | None, name: str
) -> pandas.DataFrame:
    """The rows of a file with the names of its columns: from a comment, from the first row, or else their places."""
    first = 0
    while header is None and names is None and first < len(cells) - 1 and _is_title(cells.iloc[first]):
        first += 1
    has_header = (_has_names(cells.iloc[first : first + 2]) if header is None else header) and names is None
    header_names = [tidy(cell) for cell in cells.iloc[first]] if has_header else names
    cells = cells.iloc[first + has_header :].reset_index(drop=True)
    if header_names is None:
        header_names = [str(place) for place in range(cells.shape[1])]
    if not len(cells):
        raise ValueError(f"expected rows of data, got none in {name}; check the file")
    cells = cells.set_axis(_row_names_first(cells, list(header_names), name), axis=1)
    empty = [place for place, column in enumerate(cells) if not column and bool((cells.iloc[:, place] == "").all())]
    return cells.iloc[:, [place for place in range(cells.shape[1]) if place not in empty]].infer_objects()


def _has_names(rows: pandas.DataFrame) -> bool:
    """Whether the first of two rows has names: no numbers, or 0, 1, 2, ..., or text above a number."""
    names = [str(cell).strip() for cell in rows.iloc[0]]
    if not _is_data(rows.iloc[0]) or (len(names) > 1 and names == [str(place) for place in range(len(names))]):
        return True
    below = [_is_data(rows.iloc[1, [place]]) for place in range(len(names))] if len(rows) > 1 else [False] * len(names)
    return any(
        is_number and not _is_data(rows.iloc[0, [place]]) and name.lower() not in MISSING_WORDS
        for place, (name, is_number) in enumerate(zip(names, below, strict=True))
    )


def _is_title(row: pandas.Series) -> bool:
    """Whether a row has one cell of text, the first one, of several."""
    filled = [bool(str(cell).strip()) for cell in row]
    return len(filled) > 2 and filled[0] and not any(filled[1:]) and not _is_data(row)


def _is_data(row: pandas.Series) -> bool:
    """Whether a row has a number or a date, and so no names."""
    return any(not isinstance(cell, str) or _NO_NAME.fullmatch(cell.strip()) is not None for cell in row)


def _row_names_first(cells: pandas.DataFrame, names: list[Any], name: str) -> list[Any]:
    """Names where the rows have one more cell in front, as R writes them."""
    if not names or names[-1] or not all(names[:-1]) or bool((cells.iloc[:, -1] == "").all()):
        return names
    rows = cells.iloc[:, 0].astype(str)
    if rows.is_unique and (not rows.str.fullmatch("[0-9.,]+").any() or list(rows[:2]) == ["1", "2"]):
        return [ROW_NAMES, *names[:-1]]
    raise ValueError(
        f"expected {len(names) - 1} cells in every row of {name}, as many as names, got {len(names)}; name the last "
        "column, or remove it"
    )


def _named(name: str, frame: pandas.DataFrame, described: str) -> Raw:
    """A table whose columns have names that are all different."""
    if not frame.shape[0]:
        raise ValueError(f"expected rows of data, got none in {name}; check the file")
    used: set[str] = set()
    names, repeated = [], set()
    for place, column in enumerate(map(tidy, frame.columns)):
        unique, count = column or f"unnamed {place}", 1
        while unique in used:
            repeated.add(column)
            count += 1
            unique = f"{column} ({count})"
        used.add(unique)
        names.append(unique)
    again = f"names that several columns have: {', '.join(sorted(repeated))}; the others of them got a number"
    notes = (again,) if repeated else ()
    return Raw(name, frame.set_axis(names, axis=1), described, notes, frozenset(repeated))
