"""Text files of tables: their encoding, what is between two cells, and comments."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..._support import optional
from ...sklearn.frames.problems import several
from .formats import SEPARATORS, WHITESPACE

if TYPE_CHECKING:
    import pandas

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_COMMENT = re.compile(r"(?m)^#.*\n?")
_CONTROL = re.compile("[\\x00-\\x08\\x0e-\\x1f]")
_MOST_CONTROL = 1e-3
"""The share of control characters that a text may have; a tenth of the bytes of other files are such."""
_SAMPLE_CHARACTERS = 100_000
_SAMPLE_ROWS = 200
_CONSISTENT = 0.95
"""The share of rows that have as many cells as most, from which on a separator is taken without a look at others."""
_MOST_SHOWN = 3


def decode(content: bytes, name: str, learned: str | None = None) -> tuple[str, str]:
    """The text of a file, and its encoding: by its byte order mark, else UTF-8, UTF-16 and Windows-1252 in turn."""
    for encoding in _candidates(content, learned):
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text and len(_CONTROL.findall(text)) <= max(1.0, _MOST_CONTROL * len(text)):
            return text, "utf-8" if encoding == "utf-8-sig" else encoding
    raise ValueError(f"expected text in {name}, got other bytes; save it as text in UTF-8")


def _candidates(content: bytes, learned: str | None) -> list[str]:
    marked = [encoding for mark, encoding in _MARKS if content.startswith(mark)]
    if marked:
        return marked
    if b"\0" in content[:1000]:
        is_little = content[1:1000:2].count(0) > content[0:1000:2].count(0)
        return ["utf-16-le" if is_little else "utf-16-be"]
    return ["utf-8", "latin-1", "cp1252"] if learned == "latin-1" else ["utf-8", "cp1252", "latin-1"]


def parted(text: str) -> tuple[list[str], str]:
    """The lines that begin with # above the first other line, and what follows them."""
    above: list[str] = []
    while True:
        text = text.lstrip("\r\n")
        if not text.startswith("#"):
            return above, text
        end = re.search(r"\r\n|\r|\n", text)
        line, text = (text, "") if end is None else (text[: end.start()], text[end.end() :])
        above.append(line)


def without_comments(text: str, keep: Callable[[str], bool] = lambda line: False) -> str:
    """A text without lines that begin with #, but for texts with quotation marks, in which cells span lines."""
    if '"' in text or "#" not in text:
        return text
    return _COMMENT.sub(lambda found: found[0] if keep(found[0]) else "", text)


def rows_of(text: str, separator: str) -> list[list[str]]:
    """The cells of all rows that are not blank."""
    if separator == WHITESPACE:
        return [line.split() for line in text.splitlines() if line.strip()]
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True))
    except csv.Error:
        return []
    return [row for row in rows if row]


def recognized_separator(text: str) -> str:
    """What is between two cells: what gives the most rows as many cells as most have, more than one."""
    sample = _sample(text)
    best, best_share = "comma", 0.0
    for name, separator in SEPARATORS.items():
        counts = Counter(map(len, rows_of(sample, separator)[:_SAMPLE_ROWS]))
        several = {width: count for width, count in counts.items() if width > 1}
        share = max(several.values(), default=0) / max(counts.total(), 1)
        if share > best_share:
            best, best_share = name, share
        if best_share >= _CONSISTENT:
            break
    return SEPARATORS[best]


def common_width(rows: list[list[str]]) -> int:
    """The number of cells that most rows have; 0 without rows."""
    return max(Counter(map(len, rows)).most_common(1), default=(0, 0))[0]


def sample_of(text: str, separator: str) -> list[list[str]]:
    """The cells of the first rows."""
    return rows_of(_sample(text), separator)


def _sample(text: str) -> str:
    """The first rows of a text, whole ones where it has several."""
    head = text[:_SAMPLE_CHARACTERS]
    return head if len(head) == len(text) else head[: head.rfind("\n") + 1] or head


def parsed(text: str, separator: str, name: str) -> pandas.DataFrame:
    """All rows of a text as strings, short ones filled up by empty cells."""
    reader = optional.require("pandas", "pandas", "tables")
    sample = sample_of(text, separator)
    if not sample:
        raise ValueError(f"expected rows of data, got none in {name}; check the file")
    width = max(common_width(sample), len(sample[0]))
    options: dict[str, Any] = {"sep": r"\s+" if separator == WHITESPACE else separator, "header": None}
    options |= {"names": range(width), "dtype": str, "keep_default_na": False, "index_col": False}
    try:
        table: pandas.DataFrame = reader.read_csv(io.StringIO(text), skipinitialspace=True, low_memory=False, **options)
    except reader.errors.ParserError:
        raise _ragged(text, separator, width, name) from None
    return table.fillna("")


def _ragged(text: str, separator: str, width: int, name: str) -> ValueError:
    """What to raise where rows have too many cells, or a quotation mark is never closed."""
    rows = rows_of(text, separator)
    long = [(number, len(row)) for number, row in enumerate(rows, 1) if len(row) > width]
    places = ", ".join(f"{count} in row {number}" for number, count in long[:_MOST_SHOWN])
    got = f"{several(len(long), 'row')} with more ({places})" if long else "a quotation mark that is not closed"
    return ValueError(
        f"expected at most {width} cells in every row of {name}, got {got}; check the quotation marks and the "
        "separator, or pass separator= (--separator)"
    )
