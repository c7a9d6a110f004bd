"""Chunks of rows of tall matrices."""

from __future__ import annotations

_CHUNK_BYTES = 24 * 2**20


def row_chunks(num_rows: int, num_columns: int, itemsize: int = 8) -> list[slice]:
    """Slices of rows that keep a chunk of a tall matrix near 24 MiB, where allocators reuse memory and caches help.

    :param num_rows: the number of rows N.
    :param num_columns: the number of columns.
    :param itemsize: bytes per number.
    """
    rows = min(max(_CHUNK_BYTES // (num_columns * itemsize), 512), 8192)
    return [slice(start, min(start + rows, num_rows)) for start in range(0, num_rows, rows)]
