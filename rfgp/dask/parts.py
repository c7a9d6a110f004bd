"""Partitions of Dask's data frames and arrays, and the tensors that workers make of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..data import ArraySource

Names = str | Sequence[str]


class NamedPartition(NamedTuple):
    """A partition by name: a delayed data frame and its columns by role, or delayed arrays x, y and perhaps noise."""

    name: str
    values: list[Any]
    columns: list[Any]


def parts_of_frame(frame: Any, inputs: Sequence[str], target: Names, noise: Names | None) -> list[NamedPartition]:
    """The partitions of a Dask DataFrame, with the columns that are needed; a ValueError where it lacks them."""
    if not hasattr(frame, "to_delayed"):
        raise ValueError(
            f"expected a Dask DataFrame, got a {type(frame).__name__}; convert it by dask.dataframe.from_pandas"
        )
    if isinstance(inputs, str):
        raise ValueError(f"expected a list of columns for inputs, got {inputs!r}; pass [{inputs!r}]")
    single = [names if isinstance(names, str) else list(names) for names in (target, noise) if names is not None]
    columns = [list(inputs), *single]
    wanted = list(dict.fromkeys(name for names in columns for name in ([names] if isinstance(names, str) else names)))
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        raise ValueError(f"expected columns {missing} in the data frame, got {list(frame.columns)}; choose among these")
    delayed = frame[wanted].to_delayed()
    return [NamedPartition(f"partition {number}", [values], columns) for number, values in enumerate(delayed)]


def parts_of_arrays(x: Any, y: Any, noise: Any) -> list[NamedPartition]:
    """The chunks of rows of Dask arrays, cut where the inputs are; a ValueError where that is not possible."""
    known = (("x", x), ("y", y), ("noise", noise))
    arrays = {name: value for name, value in known if value is not None or name == "x"}
    for name, value in arrays.items():
        if not hasattr(value, "to_delayed") or not hasattr(value, "chunks"):
            raise ValueError(
                f"expected a Dask array for {name}, or a Dask DataFrame for all with inputs= and target=, got "
                f"{type(value).__name__}; convert it by dask.array.from_array"
            )
        if name == "x" and value.ndim != 2:
            raise ValueError(f"expected inputs x of shape (N, d), got {value.shape}; reshape them, a column to (-1, 1)")
    cuts = x.chunks[0]
    blocks = [_blocks(name, value, cuts) for name, value in arrays.items()]
    ends = [0, *accumulate(cuts)]
    names = [f"partition {number}" + _rows(*ends[number : number + 2]) for number in range(len(cuts))]
    return [NamedPartition(name, list(values), []) for name, *values in zip(names, *blocks, strict=True)]


def batch_of(part: NamedPartition, dtype: torch.dtype | None) -> tuple[Tensor, ...] | None:
    """The rows of a computed partition, in a dtype as :class:`rfgp.data.ArraySource` has it; None if it has none."""
    frame = part.values[0]
    arrays = [frame[names].to_numpy() for names in part.columns] if part.columns else part.values
    return next(iter(ArraySource(*arrays, batch_size=len(frame), dtype=dtype))) if len(frame) else None


def full_name(part: NamedPartition) -> str:
    """The name of a partition whose values have been computed, with the index of its rows."""
    if not part.columns or not len(part.values[0]):
        return part.name
    index = part.values[0].index
    return f"{part.name} (index {index[0]} to {index[-1]})"


def _blocks(name: str, array: Any, cuts: tuple[float, ...]) -> list[Any]:
    """The chunks of rows of an array, cut where the inputs are."""
    own = array.chunks[0]
    if own != cuts and not any(math.isnan(size) for size in (*own, *cuts)):
        if sum(own) != sum(cuts):
            raise ValueError(f"expected {sum(cuts)} rows in {name}, as many as in x, got {sum(own)}; pass one per row")
        array = array.rechunk({0: cuts})
    elif len(own) != len(cuts):
        raise ValueError(
            f"expected as many chunks of rows in {name} as in x, {len(cuts)}, got {len(own)}, of unknown sizes; call "
            "compute_chunk_sizes() on both"
        )
    whole = array.rechunk({axis: -1 for axis in range(1, array.ndim)})
    return list(whole.to_delayed().reshape(-1))


def _rows(begin: float, end: float) -> str:
    return "" if math.isnan(end) else f" (rows {begin} to {end})"
