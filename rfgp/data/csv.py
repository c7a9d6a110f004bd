"""Rows of CSV files."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from itertools import count as numbers
from itertools import islice, pairwise
from typing import Any

import torch

from .._support import checks
from .base import Batch, Source, check_start, even_edges
from .blocks import files_of, joint_name
from .columns import Columns, arrow, recut

_BLOCK_BYTES = 2**23
_LARGEST_FILE = 2**40


class CsvSource(Source):
    r"""Rows of CSV files with a header, read from the first one on: their number is known only after a pass.

    A pass parses all that comes before its first batch, and a part is one of several files: Parquet is faster. The
    arguments are those of :class:`ParquetSource`, where empty fields are nulls.

    :param delimiter: what is between two fields.

    >>> import tempfile, rfgp
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("east,north,height\n0.1,3,12.0\n0.4,1,\n")
    ...     file.flush()
    ...     (x, y), = rfgp.data.CsvSource(file.name, ["east", "north"], "height")
    >>> y.tolist()
    [12.0, nan]
    """

    def __init__(
        self,
        path: Any,
        inputs: Sequence[str],
        target: str | Sequence[str] | None = None,
        noise: str | Sequence[str] | None = None,
        *,
        batch_size: int = 65536,
        dtype: torch.dtype = torch.float64,
        target_dtype: torch.dtype | None = None,
        delimiter: str = ",",
    ) -> None:
        self.batch_size = checks.positive_integer("batch_size", batch_size)
        self.columns = Columns.of(inputs, target, noise, dtype, target_dtype)
        if not isinstance(delimiter, str) or len(delimiter) != 1 or not delimiter.isascii():
            raise ValueError(f"expected one character of ASCII for delimiter, got {delimiter!r}; use a comma or a tab")
        self.delimiter = delimiter
        self.paths, self._first_row = files_of(path, ".csv"), 0
        for name in self.paths:
            with self._opened(name, []) as reader:
                self.columns.check_names(_names(reader, name), name)

    @property
    def num_rows(self) -> int | None:
        return None

    @property
    def first_row(self) -> int:
        return self._first_row

    @property
    def description(self) -> str:
        return f"{joint_name(self.paths)} ({self.columns.description}), in batches of up to {self.batch_size}"

    def batches(self, start: int = 0) -> Iterator[Batch]:
        wanted = islice(self._slices(), check_start(start), None)
        return (self.columns.batch(pieces, first, path) for path, first, pieces in wanted)

    def partitions(self, count: int) -> list[Source]:
        count = checks.positive_integer("count", count)
        if count > len(self.paths):
            raise ValueError(
                f"expected at least {count} CSV files for {count} partitions, got {joint_name(self.paths)}; write it "
                "as Parquet, which can be read from any row group on, or as several files"
            )
        return [self._files(a, b) for a, b in pairwise(even_edges(0, len(self.paths), count))]

    def _files(self, begin: int, end: int) -> Source:
        result = copy.copy(self)
        result.paths, result._first_row = self.paths[begin:end], self._first_row + begin * _LARGEST_FILE
        return result

    def _slices(self) -> Iterator[tuple[str, int, list[Any]]]:
        """Of every batch the file, the first row and the slices of record batches."""
        for path in self.paths:
            with self._opened(path, self.columns.names) as reader:
                firsts = numbers(0, self.batch_size)
                pieces = recut(_readable(reader, path), numbers(0, self.batch_size), 0)
                for first, rows in zip(firsts, pieces, strict=False):
                    yield path, first, rows

    def _opened(self, path: str, names: list[str]) -> Any:
        """A file of which some columns are read, or all."""
        csv, pyarrow = arrow("pyarrow.csv"), arrow()
        kinds = {
            name: pyarrow.from_numpy_dtype(torch.empty(0, dtype=dtype, device="cpu").numpy().dtype)
            for _, columns, dtype, _ in self.columns.groups
            for name in columns
        }
        try:
            return csv.open_csv(
                path,
                csv.ReadOptions(block_size=_BLOCK_BYTES),
                csv.ParseOptions(delimiter=self.delimiter),
                csv.ConvertOptions(include_columns=names, column_types=kinds),
            )
        except OSError as error:
            raise ValueError(f"expected a CSV file, got {path}, which cannot be read ({error}); check it") from None
        except pyarrow.ArrowInvalid as error:
            raise _unreadable(path, error) from None


def _names(reader: Any, path: str) -> list[str]:
    """The names in the header of a file."""
    try:
        names: list[str] = reader.schema.names
    except UnicodeDecodeError as error:
        raise ValueError(f"expected names of columns in UTF-8 in {path}, got others ({error}); convert it") from None
    return names


def _readable(reader: Iterable[Any], path: str) -> Iterator[Any]:
    """The record batches of a file."""
    try:
        yield from reader
    except arrow().ArrowInvalid as error:
        raise _unreadable(path, error) from None


def _unreadable(path: str, error: Exception) -> ValueError:
    return ValueError(f"expected numbers in the columns of {path}, got other text ({error}); correct the file")
