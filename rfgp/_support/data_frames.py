"""Data frames of any library as those of pandas."""

from __future__ import annotations

from typing import Any, Literal

from . import optional

Missing = Literal["raise", "drop", "impute"]
"""What is done about cells without a value: stop, leave out the row, or fill in."""


def as_pandas(table: Any, name: str = "X") -> Any:
    """A data frame of Polars, PyArrow and other libraries as one of pandas; all else is returned as it is.

    Numbers need no pandas: without it, a frame of these is returned, too.

    :raises ValueError: for a frame whose rows are not in memory.
    :raises ImportError: without narwhals and pandas.
    """
    if hasattr(table, "iloc") or not hasattr(table, "columns"):
        return table
    narwhals = optional.require("narwhals", "narwhals", "data frames of other libraries than pandas")
    frame = narwhals.from_native(table, pass_through=True)
    if isinstance(frame, narwhals.LazyFrame):
        raise ValueError(f"expected rows in memory, got a {type(table).__name__}; pass {name}.collect()")
    if not isinstance(frame, narwhals.DataFrame):
        return table
    try:
        optional.require("pandas", "pandas", "data frames with other cells than numbers")
    except ImportError:
        if all(kind.is_numeric() for kind in frame.schema.values()):
            return table
        raise
    return frame.to_pandas()
