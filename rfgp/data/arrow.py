"""Rows of Arrow files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from .blocks import BlockSource
from .columns import arrow


class ArrowSource(BlockSource):
    r"""Rows of Arrow IPC files (Feather version 2), which are mapped into memory and read by record batches.

    Batches have whole record batches where these have less rows than ``batch_size``; larger ones are cut into full
    batches and a rest.

    :param path: a file, several ones, a pattern such as "table-\*.arrow", or a folder, whose .arrow files are taken by
        name.
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

    >>> import pyarrow, pyarrow.feather, tempfile, torch, rfgp
    >>> table = pyarrow.table({"east": [0.1, 0.4, 0.9], "north": [3, 1, 2], "kind": [0, 1, 1]})
    >>> with tempfile.NamedTemporaryFile(suffix=".arrow") as file:
    ...     pyarrow.feather.write_feather(table, file.name)
    ...     source = rfgp.data.ArrowSource(file.name, ["east", "north"], "kind", target_dtype=torch.int64)
    ...     (x, y), = source
    >>> y
    tensor([0, 1, 1])
    """

    ending: ClassVar[str] = ".arrow"

    def _sizes(self, path: str) -> list[int]:
        with _opened(path) as file:
            self.columns.check(file.schema, path)
        with _opened(path, [file.schema.get_field_index(self.columns.inputs[0])]) as file:
            return [file.get_batch(block).num_rows for block in range(file.num_record_batches)]

    def _record_batches(self, path: str, blocks: Sequence[int]) -> Iterator[Any]:
        with _opened(path) as file:
            fields = [file.schema.get_field_index(name) for name in self.columns.names]
        with _opened(path, fields) as file:
            for block in blocks:
                yield file.get_batch(block)


def _opened(path: str, fields: Sequence[int] = ()) -> Any:
    """A file of which some fields are read, or all."""
    ipc = arrow("pyarrow.ipc")
    try:
        return ipc.open_file(arrow().memory_map(path), options=ipc.IpcReadOptions(included_fields=list(fields)))
    except (arrow().ArrowInvalid, OSError) as error:
        raise ValueError(f"expected an Arrow file, got {path}, which cannot be read ({error}); check it") from None
