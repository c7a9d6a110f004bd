"""Tables that are stored as blocks of columns in files: row groups of Parquet, record batches of Arrow."""

from __future__ import annotations

import os
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, ClassVar

import torch

from .. import _checks
from .base import Batch
from .columns import Columns, recut
from .cut import CutSource, block_edges
from .paths import files_of, joint_name


class BlockSource(CutSource):
    """Rows of a table in files of blocks: a pass reads each block once, and its columns alone that are asked for.

    A batch has whole blocks where these have less rows than ``batch_size``, and larger blocks are cut into full batches
    and a rest, so that reading from any batch on, and a part, leave out the blocks before.
    """

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
        batch_size = _checks.positive_integer("batch_size", batch_size)
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
    def _sizes(self, path: str) -> list[int]:
        """The number of rows of each block of a file, whose columns are checked."""

    @abstractmethod
    def _record_batches(self, path: str, blocks: Sequence[int]) -> Iterator[Any]:
        """The rows of some blocks of a file as record batches."""

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
