"""The points of a map as parts of known length, the same whatever works on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from torch import Tensor

from ..._support import checks
from ...data import ArraySource, Source

_ROWS, _VALUES = 2**18, 2**20
"""A part has at most so many rows, and about so many means: some seconds of work, and some megabytes of results."""


class MapPart(NamedTuple):
    """Points in re-iterable batches, and the row of the map that the first of them is."""

    points: Any
    start: int
    num_rows: int

    def batches(self) -> Iterator[tuple[int, Tensor]]:
        """Every batch with the row of the map that its first point is."""
        row = self.start
        for batch in self.points:
            x = _points_of(batch)
            _check(x, row)
            yield row, x
            row += len(x)


class Points:
    """All points of a map: a tensor or array (N, d), a :class:`rfgp.data.Source`, or re-iterable batches."""

    def __init__(self, points: Any) -> None:
        is_array = all(hasattr(points, member) for member in ("shape", "dtype", "__getitem__"))
        if isinstance(points, Tensor):
            checks.inputs(points, name="points")
        self.points = ArraySource(points.detach() if isinstance(points, Tensor) else points) if is_array else points
        if not isinstance(self.points, Iterable) or iter(self.points) is self.points:
            raise ValueError(
                f"expected points (N, d), a Source, or batches that can be read again, got {type(points).__name__}; "
                "use a list or a DataLoader in place of a generator"
            )
        num_rows = self.points.num_rows if isinstance(self.points, Source) else None
        self.is_counted = num_rows is not None
        self.num_rows = sum(len(_points_of(batch)) for batch in self.points) if num_rows is None else num_rows
        if self.num_rows == 0:
            raise ValueError("expected at least one point, got none; check the source")

    def first(self) -> Tensor:
        """The first point, (1, d)."""
        return next(MapPart(self.points, 0, self.num_rows).batches())[1][:1]

    def parts(self, num_outputs: int, wants_many: bool) -> list[MapPart]:
        """The points in parts, which do not depend on what works on them."""
        if not self.is_counted:
            if wants_many:
                raise ValueError(
                    f"expected points of a known number for an executor, got {type(self.points).__name__}; pass a "
                    "tensor or an array, or a Source of rfgp.data that knows its number of rows"
                )
            return [MapPart(self.points, 0, self.num_rows)]
        size = min(_ROWS, max(1024, _VALUES // num_outputs))
        parts, row = [], 0
        for source in self.points.partitions(-(-self.num_rows // size)):
            parts.append(MapPart(source, row, source.num_rows or 0))
            row += parts[-1].num_rows
        return parts


def _points_of(batch: Any) -> Tensor:
    x = batch[0] if isinstance(batch, list | tuple) and batch else batch
    return checks.inputs(x, name="points")


def _check(x: Tensor, row: int) -> None:
    """Raise a ValueError that names the first row with a value that is not finite."""
    if x.dim() != 2:
        raise ValueError(f"expected batches of points (n, d), got {tuple(x.shape)}; flatten them")
    bad = (~x.isfinite().all(-1)).nonzero().squeeze(-1)
    if len(bad):
        raise ValueError(
            f"expected finite points, got NaN or infinite values in {len(bad)} rows, the first of them row "
            f"{row + int(bad[0])} of the map; leave them out, or impute them"
        )
