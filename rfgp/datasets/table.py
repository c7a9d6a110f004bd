"""The user's own data: CSV files with a header or without, and NPZ files."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _checks, _optional
from .base import Dataset, Scaling, Task, from_arrays, split
from .npz import read_arrays

if TYPE_CHECKING:
    import pandas

SUFFIXES = (".csv", ".npz")
_ROWS_PER_CLASS = 5
_BYTES_PER_BYTE = 10  # of a file whose cells have some eight characters, as strings in columns
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
    :param task: "classification" or "regression"; default: as the targets tell.
    :param scaling: the scaling that suits the inputs.
    :raises ValueError: where the file, the target or a value is not as it should be.
    :raises ImportError: for a CSV file, without pandas.
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
    header, table = _columns(path)
    index = _column(header, target, path)
    inputs = [_numbers(table[i], f"column {header[i]!r} of {path.name}") for i in table if i != index]
    return np.stack(inputs, axis=-1), _typed(table[index], f"target {target!r} of {path.name}")


def _columns(path: Path) -> tuple[list[str], pandas.DataFrame]:
    """The names of the columns (their indices where there is no header), and the columns by index."""
    pandas = _optional.require("pandas", "pandas", "CSV files")
    if not path.is_file():
        raise ValueError(f"expected an existing file, got {str(path)!r}; check the path")
    size = path.stat().st_size
    _checks.fits_in_memory(_BYTES_PER_BYTE * size, f"the cells of {path.name}, of {size:,} bytes,", "save it as NPZ")
    try:
        text = path.read_text(encoding="utf-8-sig").lstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"expected a CSV file in UTF-8, got other bytes in {str(path)!r}; convert it") from None
    if "\0" in text:
        raise ValueError(f"expected a CSV file in UTF-8, got zero bytes in {str(path)!r}; convert it")
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    options: dict[str, Any] = {"sep": delimiter, "header": None, "na_filter": False, "skipinitialspace": True}
    try:
        header = [cell.strip() for cell in pandas.read_csv(io.StringIO(text), nrows=1, dtype=str, **options).loc[0]]
        has_header = bool(pandas.to_numeric(pandas.Series(header), errors="coerce").isna().all())
        table = pandas.read_csv(io.StringIO(text), skiprows=int(has_header), low_memory=False, **options)
    except pandas.errors.EmptyDataError:
        raise ValueError(f"expected rows of data, got none in {str(path)!r}; check the file") from None
    except pandas.errors.ParserError as error:
        reason = str(error).rpartition("error: ")[2].strip()
        raise ValueError(
            f"expected as many cells in every row of {path.name}, got {reason}; check the "
            "quotation marks and separators"
        ) from None
    if len(header) < 2:
        raise ValueError(f"expected at least two columns, got {len(header)} in {str(path)!r}; check the separators")
    if table.shape[1] != len(header):
        raise ValueError(
            f"expected {len(header)} cells in every row of {path.name}, got {table.shape[1]} in data row 1; correct it"
        )
    return header if has_header else [str(i) for i in table], table


def _column(header: list[str], target: str, path: Path) -> int:
    if header.count(target) == 1:
        return header.index(target)
    is_index = re.fullmatch("[+-]?[0-9]{1,18}", target) is not None and target not in header
    if is_index and -len(header) <= int(target) < len(header):
        return int(target) % len(header)
    names = ", ".join(_shown(name)[1:-1] for name in header[:20]) + (", ..." if len(header) > 20 else "")
    raise ValueError(
        f"expected the name of one column of {path.name} ({names}) or its index as the target, got "
        f"{_shown(target)}; choose one of them"
    )


def _parsed(column: pandas.Series) -> pandas.Series:
    return _optional.require("pandas", "pandas", "CSV files").to_numeric(column, errors="coerce")


def _numbers(column: pandas.Series, what: str) -> np.ndarray:
    """A column as finite floats, or an error that names the first bad cell."""
    values = _parsed(column).to_numpy(np.float64)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise ValueError(
            f"expected finite numbers in {what}, got {_shown(str(column[bad[0]]))} in data row {bad[0] + 1}; remove, "
            "impute or encode such rows"
        )
    return values


def _typed(column: pandas.Series, what: str) -> np.ndarray:
    """A target as integers, booleans or floats where all of its cells are, and else as strings."""
    if column.dtype.kind in "iub":
        return column.to_numpy()
    if column.dtype.kind == "f":
        return _numbers(column, what)
    if _parsed(column).notna().any():
        largest = np.abs(_numbers(column, what)).max()
        raise ValueError(
            f"expected integers of at most 64 bits in {what}, got {largest:g}; write them as floating-point numbers, "
            "or as labels with letters"
        )
    labels = column.str.strip()
    empty = np.flatnonzero(labels == "")
    if len(empty):
        raise ValueError(f"expected a value in every row of {what}, got none in data row {empty[0] + 1}; remove it")
    return labels.to_numpy(str)


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
