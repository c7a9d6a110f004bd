"""Files that are packed, whose tables are measured while they are read: small ones can hold any number of cells."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._support import checks

if TYPE_CHECKING:
    import pandas

_BYTES_PER_BYTE = 10  # of a file whose cells have some eight characters, as strings in columns
_CHUNK = 2**24
_BATCH = 256
_LARGE = 2**28
_MOST_PER_BYTE = 500
"""A large table of more than so many bytes for each of its file's is no table that somebody measured."""
_MANY_CELLS = 2**20
_SHARE_FILLED = 0.01


def content(path: Path, is_packed: bool) -> tuple[bytes, int]:
    """The bytes of a file, where its cells fit in memory, and how many it has on the disk."""
    if not path.is_file():
        raise ValueError(f"expected an existing file, got {str(path)!r}; check the path")
    num_bytes = path.stat().st_size
    if not is_packed:
        _check_size(path.name, num_bytes, num_bytes)
        return path.read_bytes(), num_bytes
    pieces, size = [], 0
    try:
        with gzip.open(path) as stream:
            while piece := stream.read(_CHUNK):
                pieces.append(piece)
                size += len(piece)
                _check_size(path.name, size, num_bytes)
    except (OSError, EOFError) as error:
        raise ValueError(
            f"expected a file of gzip, got {path.name}, which is damaged ({error}); copy it again"
        ) from None
    return b"".join(pieces), num_bytes


def parquet_frame(name: str, packed: bytes, num_bytes: int) -> pandas.DataFrame:
    """The columns of a Parquet file."""
    import pyarrow
    import pyarrow.parquet

    file, size, batches = pyarrow.parquet.ParquetFile(io.BytesIO(packed)), 0, []
    for batch in file.iter_batches(batch_size=_BATCH):
        size += batch.nbytes
        _check_size(name, size, num_bytes)
        batches.append(batch)
    frame: pandas.DataFrame = pyarrow.Table.from_batches(batches, file.schema_arrow).to_pandas()
    return frame


def check_workbook(name: str, packed: bytes, num_bytes: int) -> None:
    """Raise where the parts of a workbook are too large."""
    if zipfile.is_zipfile(io.BytesIO(packed)):
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            _check_size(name, sum(member.file_size for member in archive.infolist()), num_bytes)


def check_filled(name: str, sheet: Any) -> None:
    """Raise where next to all cells of a large sheet are empty, each of which takes its place in memory."""
    sheet.reset_dimensions()
    width = filled = 0
    for count, row in enumerate(sheet.iter_rows(values_only=True), 1):
        width = max(width, len(row))
        filled += sum(cell is not None for cell in row)
        if count * width > _MANY_CELLS and filled < _SHARE_FILLED * count * width:
            raise ValueError(
                f"expected values in the cells of {name}, got {filled:,} of {count * width:,} cells with one; remove "
                "those that are far away from the table"
            )


def _check_size(name: str, size: int, num_bytes: int) -> None:
    """Raise where a table, of so many bytes as text or columns of numbers, is too large for memory or for its file."""
    what = f"the cells of {name}, of {size:,} bytes,"
    checks.fits_in_memory(_BYTES_PER_BYTE * size, what, "take some of the rows, or rfgp.data for batches")
    if size > max(_LARGE, _MOST_PER_BYTE * num_bytes):
        raise ValueError(
            f"expected a table of at most {_MOST_PER_BYTE} times the bytes of {name}, got {size:,} bytes of "
            f"{num_bytes:,}; check the file, or take some of the rows"
        )
