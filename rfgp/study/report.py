"""How results reach people and files: tables for terminals, and JSON values."""

from __future__ import annotations

import itertools
import math
from typing import Any


def table(header: list[str], blocks: list[list[list[str]]]) -> str:
    """Columns aligned to the right, the first to the left, with rules under the header and between blocks of rows."""
    widths = [max(map(len, column)) for column in zip(header, *itertools.chain(*blocks), strict=True)]
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))

    def line(row: list[str]) -> str:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        return "  ".join([row[0].ljust(widths[0]), *cells[1:]])

    lines = [line(header)]
    for block in blocks:
        lines += [rule, *map(line, block)]
    return "\n".join(lines)


def plain(value: Any) -> Any:
    """Nested values as JSON has them: tuples become lists, and numbers that are not finite None."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
