"""Rows of Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from .blocks import BlockSource
from .columns import arrow

_ROWS = 65536
_BUFFER = 2**20


class ParquetSource(BlockSource):
    r"""Rows of Parquet files, read by row groups.

    Batches have whole row groups where these have less rows than ``batch_size``; larger row groups are cut into full
    batches and a rest. Memory is that of a few batches, whatever the row groups.

    :param path: a file, several ones, a pattern such as "table-\*.parquet", or a folder, whose files are taken by name.
    :param inputs: the columns of the inputs (N, d): floating-point numbers, integers or booleans without nulls.
    :param target: the column of the targets (N,), or several ones for (N, T), in which nulls become NaN, a missing
        output; default: none, and batches (x,), for maps.
    :param noise: the columns of the noise variances, as many as of the targets.
    :param batch_size: the largest number of rows in a batch.
    :param dtype: of inputs, noise and targets.
    :param target_dtype: of the targets, ``torch.int64`` for class labels; default: ``dtype``.
    :raises ValueError: where there is no such file or column, for columns that hold no numbers, and, while reading, for
        nulls elsewhere than in targets.
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

    ending: ClassVar[str] = ".parquet"

    def _sizes(self, path: str) -> list[int]:
        with _opened(path) as file:
            self.columns.check(file.schema_arrow, path)
            return [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]

    def _record_batches(self, path: str, blocks: Sequence[int]) -> Iterator[Any]:
        with _opened(path) as file:
            yield from file.iter_batches(_ROWS, list(blocks), self.columns.names)


def _opened(path: str) -> Any:
    try:
        return arrow("pyarrow.parquet").ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER)
    except (arrow().ArrowInvalid, OSError) as error:
        raise ValueError(f"expected a Parquet file, got {path}, which cannot be read ({error}); check it") from None
