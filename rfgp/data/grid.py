"""The points of a grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from .._support import checks
from .base import Batch, CutSource


class GridSource(CutSource):
    """The points of a product grid as inputs (x,), made batch by batch; the last axis runs fastest.

    Row n of values is the point ``n`` of ``values.reshape(len(axes[0]), ..., len(axes[-1]))``.

    :param axes: the coordinates along each axis, of one dtype.
    :param batch_size: the largest number of points in a batch.
    :raises ValueError: where an axis is no tensor of floating-point numbers in one dimension.

    >>> import torch, rfgp
    >>> source = rfgp.data.GridSource([torch.tensor([0.0, 1.0]), torch.tensor([5.0, 6.0, 7.0])], batch_size=4)
    >>> [x.tolist() for x, in source]
    [[[0.0, 5.0], [0.0, 6.0], [0.0, 7.0], [1.0, 5.0]], [[1.0, 6.0], [1.0, 7.0]]]
    """

    def __init__(self, axes: Sequence[Tensor], *, batch_size: int = 65536) -> None:
        batch_size = checks.positive_integer("batch_size", batch_size)
        checks.instance("axes", axes, (list, tuple), "a list of tensors", "pass one tensor per axis")
        if not axes:
            raise ValueError("expected at least one axis, got none; pass a tensor for each")
        for number, axis in enumerate(axes):
            checks.finite(checks.floating(axis, f"axes[{number}]"), f"axes[{number}]")
            if axis.dim() != 1 or not len(axis):
                raise ValueError(f"expected axes[{number}] of shape (n,), got {tuple(axis.shape)}; pass coordinates")
            checks.same_kind(axis, axes[0], f"axes[{number}]", "axes[0]")
        self.axes = tuple(axes)
        num_rows = torch.Size(self.shape).numel()
        super().__init__([*range(0, num_rows, batch_size), num_rows], batch_size)

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of points along the axes."""
        return tuple(len(axis) for axis in self.axes)

    @property
    def name(self) -> str:
        ends = ", ".join(f"{float(axis[0]):g} to {float(axis[-1]):g}" for axis in self.axes)
        return f"a grid of {' x '.join(map(str, self.shape))} points ({ends})"

    def _read(self, edges: Sequence[int]) -> Iterator[Batch]:
        for begin, end in pairwise(edges):
            rows = torch.arange(begin, end, device=self.axes[0].device)
            places = torch.unravel_index(rows, self.shape)
            yield (torch.stack([axis[place] for axis, place in zip(self.axes, places, strict=True)], -1),)
