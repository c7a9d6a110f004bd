"""Tables that are stored as blocks of columns in files: row groups of Parquet, record batches of Arrow."""

from __future__ import annotations

import glob
import os
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

import torch

from .._support import checks
from .base import Batch, CutSource, block_edges
from .columns import Columns, arrow, recut

_ROWS = 65536
_BUFFER = 2**20


class BlockSource(CutSource):
    """Rows of a table in files of blocks: a pass reads each block once, and only the columns that are asked for."""

    kind: ClassVar[str]
    ending: ClassVar[str]

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
    ) -> None:
        batch_size = checks.positive_integer("batch_size", batch_size)
        self.columns = Columns.of(inputs, target, noise, dtype, target_dtype)
        self.paths = files_of(path, self.ending)
        self.blocks: list[tuple[str, int]] = []
        rows: list[int] = []
        self.bytes = {name: _num_bytes(name) for name in self.paths}
        for name in self.paths:
            sizes = self._sizes(name)
            self.blocks += [(name, block) for block in range(len(sizes))]
            rows += sizes
        self.first_rows = list(accumulate(rows, initial=0))
        if self.first_rows[-1] == 0:
            raise ValueError(f"expected at least one row in {joint_name(self.paths)}, got none; check the file")
        super().__init__(block_edges(rows, batch_size), batch_size)

    @abstractmethod
    def _open(self, path: str, fields: Sequence[int] = ()) -> Any:
        """A file of which some fields are read, or all."""

    @abstractmethod
    def _sizes(self, path: str) -> list[int]:
        """The number of rows of each block of a file, whose columns are checked."""

    @abstractmethod
    def _record_batches(self, path: str, blocks: Sequence[int]) -> Iterator[Any]:
        """The rows of some blocks of a file as record batches."""

    def _opened(self, path: str, fields: Sequence[int] = ()) -> Any:
        try:
            return self._open(path, fields)
        except (arrow().ArrowInvalid, OSError) as error:
            raise ValueError(f"expected {self.kind}, got {path}, which cannot be read ({error}); check it") from None

    @property
    def name(self) -> str:
        return f"{joint_name(self.paths)} ({self.columns.description})"

    def _read(self, edges: Sequence[int]) -> Iterator[Batch]:
        first = bisect_right(self.first_rows, edges[0]) - 1
        pieces = recut(self._from(first, edges[-1]), edges, self.first_rows[first])
        for begin, rows in zip(edges, pieces, strict=False):
            yield self.columns.batch(rows, begin, joint_name(self.paths))

    def _from(self, first: int, end: int) -> Iterator[Any]:
        """Record batches from a block on, up to the one with the row before ``end``."""
        wanted: dict[str, list[int]] = {}
        for (path, block), begin in zip(self.blocks[first:], self.first_rows[first:], strict=False):
            if begin < end:
                wanted.setdefault(path, []).append(block)
        for path, blocks in wanted.items():
            if _num_bytes(path) != self.bytes[path]:
                raise ValueError(
                    f"expected {path} as it was when the source was made, {self.bytes[path]} bytes, got "
                    f"{_num_bytes(path)}; make the source again"
                )
            yield from self._record_batches(path, blocks)


def _num_bytes(path: str) -> int:
    """The size of a file, 0 where it is gone."""
    return os.path.getsize(path) if os.path.exists(path) else 0


def files_of(paths: Any, ending: str) -> list[str]:
    """The absolute paths of the files that are meant, in order; those of a pattern or a folder by name."""
    if isinstance(paths, Sequence) and not isinstance(paths, str):
        files = [name for path in paths for name in files_of(path, ending)]
    else:
        if paths is None:
            raise ValueError("expected a path, got None; pass a file, a folder or a list of files")
        checks.path("path", paths)
        name = os.fspath(paths)
        if Path(name).is_dir():
            files = [str(path) for path in sorted(Path(name).rglob(f"*{ending}"))]
        else:
            files = [name] if Path(name).exists() else sorted(glob.glob(name))
    if not files:
        raise ValueError(f"expected a file, a folder with {ending} files or a pattern, got {paths!r}; check the path")
    return [os.path.abspath(path) for path in files]


def joint_name(paths: Sequence[str]) -> str:
    """What to call files in a message."""
    return paths[0] if len(paths) == 1 else f"{len(paths)} files {paths[0]} to {paths[-1]}"


class ParquetSource(BlockSource):
    r"""Rows of Parquet files, read by row groups.

    Batches have whole row groups where these have less rows than ``batch_size``; larger ones are cut.

    :param path: a file, several ones, a pattern such as "table-\*.parquet", or a folder, whose files are taken by name.
    :param inputs: the columns of the inputs (N, d): floating-point numbers, integers or booleans without nulls.
    :param target: the column of the targets (N,), or several ones, (N, T), where null means missing; default: none.
    :param noise: the columns of the noise variances, as many as of the targets.
    :param batch_size: the largest number of rows in a batch.
    :param dtype: of inputs, noise and targets.
    :param target_dtype: of the targets, ``torch.int64`` for class labels; default: ``dtype``.
    :raises ValueError: where there is no such file or column, and for values that are no numbers.
    :raises ImportError: without PyArrow, which is in the extra ``big``.

    >>> import pyarrow, pyarrow.parquet, tempfile, rfgp
    >>> table = pyarrow.table({"east": [0.1, 0.4, 0.9], "north": [3, 1, 2], "height": [12.0, None, 15.5]})
    >>> with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
    ...     pyarrow.parquet.write_table(table, file.name)
    ...     source = rfgp.data.ParquetSource(file.name, inputs=["east", "north"], target="height")
    ...     (x, y), = source
    >>> source.num_rows, x.shape, y.tolist()
    (3, torch.Size([3, 2]), [12.0, nan, 15.5])
    """

    kind, ending = "a Parquet file", ".parquet"

    def _open(self, path: str, fields: Sequence[int] = ()) -> Any:
        return arrow("pyarrow.parquet").ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER)

    def _sizes(self, path: str) -> list[int]:
        with self._opened(path) as file:
            self.columns.check(file.schema_arrow, path)
            return [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]

    def _record_batches(self, path: str, blocks: Sequence[int]) -> Iterator[Any]:
        with self._opened(path) as file:
            yield from file.iter_batches(_ROWS, list(blocks), self.columns.names)


class ArrowSource(BlockSource):
    """Rows of Arrow IPC files (Feather version 2), which are mapped into memory and read by record batches.

    The arguments are those of :class:`ParquetSource`; of a folder the .arrow files are taken.

    >>> import pyarrow, pyarrow.feather, tempfile, torch, rfgp
    >>> table = pyarrow.table({"east": [0.1, 0.4, 0.9], "north": [3, 1, 2], "kind": [0, 1, 1]})
    >>> with tempfile.NamedTemporaryFile(suffix=".arrow") as file:
    ...     pyarrow.feather.write_feather(table, file.name)
    ...     source = rfgp.data.ArrowSource(file.name, ["east", "north"], "kind", target_dtype=torch.int64)
    ...     (x, y), = source
    >>> y
    tensor([0, 1, 1])
    """

    kind, ending = "an Arrow file", ".arrow"

    def _open(self, path: str, fields: Sequence[int] = ()) -> Any:
        options = arrow("pyarrow.ipc").IpcReadOptions(included_fields=list(fields))
        return arrow("pyarrow.ipc").open_file(arrow().memory_map(path), options=options)

    def _sizes(self, path: str) -> list[int]:
        with self._opened(path) as file:
            self.columns.check(file.schema, path)
        with self._opened(path, [file.schema.get_field_index(self.columns.inputs[0])]) as file:
            return [file.get_batch(block).num_rows for block in range(file.num_record_batches)]

    def _record_batches(self, path: str, blocks: Sequence[int]) -> Iterator[Any]:
        with self._opened(path) as file:
            fields = [file.schema.get_field_index(name) for name in self.columns.names]
        with self._opened(path, fields) as file:
            for block in blocks:
                yield file.get_batch(block)
