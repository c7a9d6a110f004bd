"""Options of the commands that read a table."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from ..._support.data_frames import Missing
from ..tables.formats import SEPARATORS, SUFFIXES

if TYPE_CHECKING:
    import pandas

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
FORMATS = f"a file that ends in {', '.join(SUFFIXES)}, with or without .gz"


def add_reading(parser: argparse.ArgumentParser, default_of_missing: str) -> None:
    """The options that say how a table is read."""
    add = parser.add_argument
    add(
        "--missing",
        choices=get_args(Missing),
        help=f"cells without a value: stop, leave out the row, or fill in (default: {default_of_missing})",
    )
    add("--separator", help=f"a character, or {', '.join(SEPARATORS)} (default: recognized)")
    add("--decimal", choices=(".", ","), help="decimal point or comma of text (default: recognized)")
    add("--header", choices=("yes", "no"), help="whether the first row has the names (default: recognized)")
    add("--sheet", help="name or index of the sheet of a workbook (default: the first one)")


def add_missing_values(parser: argparse.ArgumentParser) -> None:
    """The option that says which words stand for no value; a model keeps them."""
    parser.add_argument(
        "--missing-values",
        type=names,
        help="words of cells without a value, with commas between them, in place of NA, NaN, null, none, ? and others",
    )


def reading(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of :func:`rfgp.study.tables.read` that these options give."""
    header = None if options.header is None else options.header == "yes"
    arguments = {"separator": options.separator, "decimal": options.decimal, "header": header, "sheet": options.sheet}
    if getattr(options, "missing_values", None) is not None:
        arguments["missing_values"] = options.missing_values
    return arguments if options.missing is None else arguments | {"missing": options.missing}


def check_existing(*names: str) -> None:
    """Raise where a file is not there, before anything that reads it is imported."""
    for name in names:
        if not Path(name).is_file():
            raise ValueError(f"expected an existing file, got {name!r}; check the path")


def check_new_file(name: str, force: bool, *inputs: str) -> None:
    """Raise where a file cannot be written, is there already, or is one of those that are read."""
    path = Path(name)
    if any(path.exists() and Path(read).exists() and path.samefile(read) for read in inputs):
        raise ValueError(f"expected a file for --out that is not read, got {name!r}; choose another name")
    if not name or path.is_dir():
        got = f"the folder {name!r}" if name else "an empty name"
        raise ValueError(f"expected a file for --out, got {got}; name a file in it")
    if not path.parent.is_dir():
        raise ValueError(f"expected a folder for --out, got none at {str(path.parent)!r}; make it first")
    if os.path.lexists(path) and not force:
        raise ValueError(f"expected a new file for --out, got {name!r}, which is there; pass --force to write over it")


def without_formulas(table: pandas.DataFrame) -> pandas.DataFrame:
    """A table whose cells and names of columns are no formulas for a spreadsheet: these have an apostrophe in front."""
    return table.map(_as_text).rename(columns=_as_text)


def _as_text(cell: Any) -> Any:
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


_MOST_DIGITS = 18


def names(text: str) -> list[str]:
    """What stands between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def integers(text: str) -> list[int]:
    """Positive integers between commas."""
    return [integer(part) for part in names(text)]


def integer(text: str) -> int:
    """A positive integer."""
    if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) == 0:
        raise argparse.ArgumentTypeError(
            f"expected a positive integer, got {text[:40]!r}; choose one of up to {_MOST_DIGITS} digits"
        )
    return int(text)


def number(text: str) -> float:
    """A positive number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text[:40]!r}; choose another")
    return value
