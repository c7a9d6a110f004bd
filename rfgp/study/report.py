"""How results reach people and files: tables for terminals, and JSON values."""

from __future__ import annotations

import itertools
import math
from typing import Any


def plus_minus(mean: float, error: float) -> str:
    """A mean and its standard error, to two digits of the error and at most four of the mean.

    >>> plus_minus(21.674, 0.5321), plus_minus(0.0111, math.nan)
    ('21.67 ± 0.53', '0.0111')
    """
    if not (math.isfinite(mean) and math.isfinite(error)) or error == 0 or mean == 0:
        return f"{mean:.4g}"
    decimals = min(1 - _magnitude(error), max(3 - _magnitude(mean), -_magnitude(error)))
    return f"{mean:.{max(decimals, 0)}f} ± {error:.{max(decimals, 0)}f}"


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value)))


def table(header: list[str], blocks: list[list[list[str]]]) -> str:
    """Columns aligned to the right, the first to the left, with rules under the header and between blocks of rows.

    >>> print(table(["a", "b"], [[["x", "1"]], [["y", "10"]]]))
    a   b
    -----
    x   1
    -----
    y  10
    """
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
