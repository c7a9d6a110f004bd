"""Options of the commands that read a table."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from ..tables.formats import MISSING, SEPARATORS, SUFFIXES

FORMATS = f"a file that ends in {', '.join(SUFFIXES)}, with or without .gz"


def add_reading(parser: argparse.ArgumentParser, default_of_missing: str) -> None:
    """The options that say how a table is read."""
    add = parser.add_argument
    add(
        "--missing",
        choices=MISSING,
        help=f"cells without a value: stop, leave out the row, or fill in (default: {default_of_missing})",
    )
    add("--separator", help=f"a character, or {', '.join(SEPARATORS)} (default: recognized)")
    add("--decimal", choices=(".", ","), help="decimal point or comma of text (default: recognized)")
    add("--header", choices=("yes", "no"), help="whether the first row has the names (default: recognized)")
    add("--sheet", help="name or index of the sheet of a workbook (default: the first one)")


def reading(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of :func:`rfgp.study.tables.read` that these options give."""
    header = None if options.header is None else options.header == "yes"
    arguments = {"separator": options.separator, "decimal": options.decimal, "header": header, "sheet": options.sheet}
    return arguments if options.missing is None else arguments | {"missing": options.missing}


def check_new_file(name: str, force: bool) -> None:
    """Raise where a file cannot be written, or is there already."""
    path = Path(name)
    if not name or path.is_dir():
        got = f"the folder {name!r}" if name else "an empty name"
        raise ValueError(f"expected a file for --out, got {got}; name a file in it")
    if not path.parent.is_dir():
        raise ValueError(f"expected a folder for --out, got none at {str(path.parent)!r}; make it first")
    if path.exists() and not force:
        raise ValueError(f"expected a new file for --out, got {name!r}, which is there; pass --force to write over it")


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
