"""The user's own data: CSV files with a header or without, and NPZ files."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np

from .. import _checks
from .base import Dataset, Scaling, Task, from_arrays, split
from .npz import read_arrays

SUFFIXES = (".csv", ".npz")
_ROWS_PER_CLASS = 5
_BYTES_PER_BYTE = 10  # of a file whose cells have some eight characters, as Python strings in lists
_INTEGER = re.compile("[+-]?[0-9]+")
_MOST_DIGITS = 18
_MOST_SHOWN = 40


def read_table(
    path: str | Path,
    target: str | int,
    inputs: str = "x",
    task: Task | None = None,
    scaling: Scaling = "standardize",
) -> Dataset:
    """Read a CSV or NPZ file, and keep a random fifth of its rows for testing.

    Integers, booleans and strings as targets are class labels, numbered in their sorted order; other numbers make a
    regression.

    :param path: a file that ends in .csv or .npz.
    :param target: the name or index of a column of a CSV file (all other columns are inputs), or the name of an array.
    :param inputs: the name of the array of inputs of an NPZ file.
    :param task: "classification" or "regression"; where it is None the targets tell.
    :param scaling: the scaling that suits the inputs.
    :raises ValueError: where the file, the target or a value is not as it should be.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"expected a file that ends in {' or '.join(SUFFIXES)}, got {str(path)!r}; convert it")
    if path.suffix.lower() == ".csv":
        x, values = _read_csv(path, str(target))
    else:
        x, values = _read_npz(path, str(target), inputs)
    what = f"target {target!r} of {path.name}"
    y, found = _targets(values, task, what)
    parts = split(path.name, x, y)
    return from_arrays(path.stem, parts, found, provenance=str(path), licence="that of the file", scaling=scaling)


def _read_csv(path: Path, target: str) -> tuple[np.ndarray, np.ndarray]:
    header, rows = _cells(path)
    index = _column(header, target, path)
    columns = list(zip(*rows, strict=True))
    kept = [i for i in range(len(header)) if i != index]
    x = np.empty((len(rows), len(kept)))
    for k, i in enumerate(kept):
        x[:, k] = _numbers(columns[i], f"column {header[i]!r} of {path.name}")
    return x, _typed(columns[index], f"target {target!r} of {path.name}")


def _cells(path: Path) -> tuple[list[str], list[list[str]]]:
    """The names of the columns (their indices where there is no header), and the rows of cells."""
    if not path.is_file():
        raise ValueError(f"expected an existing file, got {str(path)!r}; check the path")
    size = path.stat().st_size
    _checks.fits_in_memory(_BYTES_PER_BYTE * size, f"the cells of {path.name}, of {size:,} bytes,", "save it as NPZ")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"expected a CSV file in UTF-8, got other bytes in {str(path)!r}; convert it") from None
    if "\0" in text:
        raise ValueError(f"expected a CSV file in UTF-8, got zero bytes in {str(path)!r}; convert it")
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines(), delimiter=delimiter) if row]
    except csv.Error:
        raise ValueError(
            f"expected cells of at most {csv.field_size_limit():,} characters in {path.name}, got a longer one; check "
            "the quotation marks and separators"
        ) from None
    has_header = bool(rows) and not any(_is_number(cell) for cell in rows[0])
    header = rows.pop(0) if has_header else [str(i) for i in range(len(rows[0]) if rows else 0)]
    if not rows:
        raise ValueError(f"expected rows of data, got none in {str(path)!r}; check the file")
    if len(header) < 2:
        raise ValueError(f"expected at least two columns, got {len(header)} in {str(path)!r}; check the separators")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(header):
            raise ValueError(
                f"expected {len(header)} cells in every row of {path.name}, got {len(row)} in data row {number}; "
                "correct it"
            )
    return header, rows


def _column(header: list[str], target: str, path: Path) -> int:
    if header.count(target) == 1:
        return header.index(target)
    is_index = _is_integer(target) and len(target) <= _MOST_DIGITS and target not in header
    if is_index and -len(header) <= int(target) < len(header):
        return int(target) % len(header)
    names = ", ".join(_shown(name)[1:-1] for name in header[:20]) + (", ..." if len(header) > 20 else "")
    raise ValueError(
        f"expected the name of one column of {path.name} ({names}) or its index as the target, got "
        f"{_shown(target)}; choose one of them"
    )


def _numbers(cells: Any, what: str) -> np.ndarray:
    """Cells as finite floats, or an error that names the first bad one."""
    try:
        values = np.array(cells, dtype=object).astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(values))
    except ValueError:
        bad = np.array([i for i, cell in enumerate(cells) if not _is_number(cell)])
    if len(bad):
        raise ValueError(
            f"expected finite numbers in {what}, got {_shown(cells[bad[0]])} in data row {bad[0] + 1}; remove, impute "
            "or encode such rows"
        )
    return values


def _typed(cells: tuple[str, ...], what: str) -> np.ndarray:
    """Cells of a target as integers where all are, as floats where all are, and else as strings."""
    empty = [i for i, cell in enumerate(cells) if not cell]
    if empty:
        raise ValueError(f"expected a value in every row of {what}, got none in data row {empty[0] + 1}; remove it")
    if all(_is_integer(cell) for cell in cells):
        longest = max(cells, key=len)
        if len(longest) > _MOST_DIGITS:
            raise ValueError(
                f"expected integers of at most {_MOST_DIGITS} characters in {what}, got {_shown(longest)}; write them "
                "as floating-point numbers, or as labels with letters"
            )
        return np.array([int(cell) for cell in cells])
    return _numbers(cells, what) if any(_is_number(cell) for cell in cells) else np.array(cells)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_integer(cell: str) -> bool:
    return _INTEGER.fullmatch(cell) is not None


def _shown(cell: str) -> str:
    """A cell for a message, cut where it is long."""
    return repr(cell if len(cell) <= _MOST_SHOWN else cell[:_MOST_SHOWN] + "...")


def _read_npz(path: Path, target: str, inputs: str) -> tuple[np.ndarray, np.ndarray]:
    arrays = read_arrays(path)
    for key, role in ((inputs, "inputs"), (target, "target")):
        if key not in arrays:
            raise ValueError(
                f"expected one of the arrays of {path.name} ({', '.join(arrays)}) as the {role}, got "
                f"{key!r}; choose one of them"
            )
    x, y = arrays[inputs], arrays[target]
    if x.ndim != 2 or x.dtype.kind not in "fiub" or 0 in x.shape:
        raise ValueError(
            f"expected inputs {inputs!r} of {path.name} as an array (N, d) of numbers, got {x.dtype} of "
            f"shape {x.shape}; reshape it"
        )
    x = x.astype(np.float64)
    if not np.isfinite(x).all():
        raise ValueError(
            f"expected finite numbers in {inputs!r} of {path.name}, got {np.sum(~np.isfinite(x))} others; remove or "
            "impute such rows"
        )
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim != 1 or len(y) != len(x):
        raise ValueError(
            f"expected a target {target!r} of {path.name} of shape ({len(x)},), one per row of the inputs, "
            f"got {y.shape}; save one output"
        )
    return x, y


def _targets(values: np.ndarray, task: Task | None, what: str) -> tuple[np.ndarray, Task]:
    """Targets as floats or as class numbers, and the task they make."""
    kind = values.dtype.kind
    if kind not in "fiubUS":
        raise ValueError(f"expected numbers or strings in {what}, got {values.dtype}; convert it")
    if kind == "f" and not np.isfinite(values).all():
        raise ValueError(f"expected finite numbers in {what}, got {np.sum(~np.isfinite(values))} others; remove them")
    if task == "regression" or (task is None and kind == "f"):
        if kind in "US":
            raise ValueError(
                f"expected numbers in {what} for regression, got {str(values[0])!r}; choose classification"
            )
        return values.astype(np.float64), "regression"
    if kind == "f" and not np.array_equal(values, np.round(values)):
        raise ValueError(f"expected class labels in {what}, got fractions; choose regression")
    classes, y = np.unique(values, return_inverse=True)
    if task is None and len(classes) * _ROWS_PER_CLASS > len(values):
        raise ValueError(
            f"expected class labels in {what}, with at least {_ROWS_PER_CLASS} rows per class, got {len(classes)} "
            f"values in {len(values)} rows; choose the task by name (--task)"
        )
    return y, "classification"
