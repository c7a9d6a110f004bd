"""Named columns of Arrow record batches as tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._support import optional
from .base import Batch

_TILE = 4096
_NO_ROW = 2**63
_DTYPES = (torch.float32, torch.float64)
_TARGET_DTYPES = (None, *_DTYPES, torch.int64)


def arrow(module: str = "pyarrow") -> Any:
    """PyArrow, or one of its modules."""
    return optional.require(module, "pyarrow", "tables in files", "big")


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are inputs, targets and noise variances, and their dtypes."""

    inputs: tuple[str, ...]
    target: str | tuple[str, ...] | None
    noise: str | tuple[str, ...] | None
    dtype: torch.dtype
    target_dtype: torch.dtype

    @classmethod
    def of(cls, inputs: Any, target: Any, noise: Any, dtype: Any, target_dtype: Any) -> Columns:
        """Those that a user asks for."""
        if isinstance(inputs, str) or not _are_names(inputs):
            raise ValueError(f'expected names of columns for inputs, got {inputs!r}; pass a list such as ["a", "b"]')
        for name, value in (("target", target), ("noise", noise)):
            if not (value is None or isinstance(value, str) or _are_names(value)):
                raise ValueError(f"expected a column or a list of columns for {name}, got {value!r}; pass names")
        of_target, of_noise = (
            value if value is None or isinstance(value, str) else tuple(value) for value in (target, noise)
        )
        if of_noise is not None and (type(of_noise) is not type(of_target) or np.size(of_noise) != np.size(of_target)):
            raise ValueError(f"expected as many columns for noise as for target, {target!r}, got {noise!r}; name each")
        for name, value, kinds in (("dtype", dtype, _DTYPES), ("target_dtype", target_dtype, _TARGET_DTYPES)):
            if value not in kinds:
                raise ValueError(f"expected torch.float32 or torch.float64 for {name}, got {value!r}; use one of these")
        return cls(tuple(inputs), of_target, of_noise, dtype, target_dtype or dtype)

    @property
    def groups(self) -> tuple[tuple[str, tuple[str, ...], torch.dtype, bool], ...]:
        """For each tensor of a batch its name, its columns, its dtype, and whether it has one dimension."""
        groups = [("inputs", self.inputs, self.dtype, False)]
        for name, columns, dtype in (
            ("target", self.target, self.target_dtype),
            ("noise", self.noise, self.dtype),
        ):
            if columns is not None:
                is_one = isinstance(columns, str)
                groups.append((name, (columns,) if isinstance(columns, str) else columns, dtype, is_one))
        return tuple(groups)

    @property
    def names(self) -> list[str]:
        """All columns, each once."""
        return list(dict.fromkeys(name for _, columns, _, _ in self.groups for name in columns))

    @property
    def description(self) -> str:
        """Which columns these are."""
        return "; ".join(f"{name} {', '.join(columns)}" for name, columns, _, _ in self.groups)

    def check(self, schema: Any, path: str) -> None:
        """Raise where a table lacks a column, or has something else than numbers in it."""
        types = arrow("pyarrow.types")
        self.check_names(schema.names, path)
        for name in self.names:
            kind = schema.field(name).type
            if any(is_kind(kind) for is_kind in (types.is_integer, types.is_floating, types.is_boolean)):
                continue
            raise ValueError(
                f"expected numbers in column {name!r} of {path}, got {kind}; write it as numbers, such as integer "
                "codes or one column of zeros and ones per value"
            )
        for group, names, dtype, _ in self.groups:
            broken = [name for name in names if types.is_floating(schema.field(name).type)]
            if broken and not dtype.is_floating_point:
                raise ValueError(
                    f"expected integers in {group} {broken} of {path} for {dtype}, got floating-point numbers; write "
                    "them as integers, or leave target_dtype out"
                )

    def check_names(self, names: Sequence[str], path: str) -> None:
        """Raise where a table lacks a column, or has several of its name."""
        missing = [name for name in self.names if name not in names]
        if missing:
            raise ValueError(f"expected columns {missing} in {path}, got {list(names)}; choose among these")
        several = [name for name in self.names if names.count(name) > 1]
        if several:
            raise ValueError(f"expected one column of each name in {path}, got several {several}; rename them")

    def batch(self, pieces: Sequence[Any], first: int, path: str) -> Batch:
        """A batch of the rows of record batches, one after the other."""
        result = []
        for group, names, dtype, is_one in self.groups:
            may_miss = group == "target" and dtype.is_floating_point
            columns = [[piece.column(name) for piece in pieces] for name in names]
            if not may_miss:
                for name, parts in zip(names, columns, strict=True):
                    _check_complete(parts, name, group, first, path)
            values = _matrix(columns, dtype)
            result.append(values[:, 0] if is_one else values)
        return tuple(result)


def _are_names(value: Any) -> bool:
    is_list = isinstance(value, Sequence) and len(value) > 0
    return is_list and all(isinstance(name, str) for name in value) and len(set(value)) == len(value)


def _check_complete(parts: Sequence[Any], name: str, group: str, first: int, path: str) -> None:
    """Raise where a column has nulls."""
    if not any(part.null_count for part in parts):
        return
    bad = first + np.flatnonzero(np.concatenate([part.is_null().to_numpy(zero_copy_only=False) for part in parts]))
    listed = ", ".join(map(str, bad[:5])) + (", ..." if len(bad) > 5 else "")
    advice = (
        "use target_dtype=torch.float64, in which they are NaN, or drop these rows"
        if group == "target"
        else ("drop or fill these rows")
    )
    raise ValueError(
        f"expected values in column {name!r} ({group}) of {path}, got nulls in {len(bad)} rows of a batch: "
        f"{listed}; {advice}"
    )


def _matrix(columns: Sequence[Sequence[Any]], dtype: torch.dtype) -> Tensor:
    """Columns, each in parts, as a contiguous matrix (n, columns); few rows at a time, which stay in the cache."""
    result = torch.empty(sum(map(len, columns[0])), len(columns), dtype=dtype, device="cpu")
    matrix, end = result.numpy(), 0
    for parts in zip(*columns, strict=True):
        arrays = [part.to_numpy(zero_copy_only=False) for part in parts]
        begin, end = end, end + len(arrays[0])
        for first in range(begin, end, _TILE):
            rows = slice(first, min(first + _TILE, end))
            for column, array in enumerate(arrays):
                matrix[rows, column] = array[first - begin : first - begin + _TILE]
    return result


def recut(record_batches: Iterable[Any], edges: Iterable[int], first: int) -> Iterator[list[Any]]:
    """Slices of record batches, together the rows between neighboring edges; the last ones may be fewer."""
    ranges = pairwise(edges)
    row, stop = next(ranges)
    pieces: list[Any] = []
    end = first
    for present in record_batches:
        begin, end = end, end + present.num_rows
        while row < end:
            piece = present.slice(row - begin, stop - row)
            pieces.append(piece)
            row += piece.num_rows
            if row < stop:
                break
            yield pieces
            pieces = []
            row, stop = next(ranges, (_NO_ROW, _NO_ROW))
    if pieces:
        yield pieces
