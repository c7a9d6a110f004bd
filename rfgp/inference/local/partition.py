"""Blocks of near rows: a tree of median splits, which knows where new rows belong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

import torch
from torch import Tensor

_SAMPLE = 1000
"""About so many rows tell which column is the widest."""


class _Split(NamedTuple):
    """One split: rows whose coordinate is at most a threshold go left. A negative child -1 - b is block b."""

    column: int
    threshold: float
    left: int
    right: int


class BlockPartition:
    """A partition of space into boxes, split at the median of their widest column, with at most ``size`` rows each.

    :param points: (N, d), with columns in comparable units, such as lengthscales.
    """

    def __init__(self, points: Tensor, size: int) -> None:
        self.size = size
        self._splits: list[_Split] = []
        self.blocks: list[Tensor] = []
        self._root = self._grow(points.detach().cpu(), torch.arange(len(points)))

    def _grow(self, points: Tensor, rows: Tensor, block: int | None = None) -> int:
        """The node of a box with these rows: a split, or a new block, or the known block where it is given."""
        if len(rows) <= self.size:
            if block is None:
                self.blocks.append(rows)
                return -len(self.blocks)
            self.blocks[block] = rows
            return -1 - block
        column, threshold, is_left = _median_split(points[rows])
        self._splits.append(_Split(column, threshold, 0, 0))
        number = len(self._splits) - 1
        left = self._grow(points, rows[is_left], block)
        right = self._grow(points, rows[~is_left])
        self._splits[number] = _Split(column, threshold, left, right)
        return number

    def place(self, points: Tensor) -> Tensor:
        """The number of the block that each of some points (n, d) lies in, (n,), on the CPU."""
        points = points.cpu()
        blocks = torch.empty(len(points), dtype=torch.long)
        waiting = [(self._root, torch.arange(len(points)))]
        while waiting:
            node, rows = waiting.pop()
            if node < 0:
                blocks[rows] = -1 - node
                continue
            split = self._splits[node]
            is_left = points[rows, split.column] <= split.threshold
            waiting += [(split.left, rows[is_left]), (split.right, rows[~is_left])]
        return blocks

    def extended(self, points: Tensor, num_new: int) -> tuple[Self, list[int]]:
        """The partition with more rows, and the numbers of the blocks that changed.

        Blocks that grow too large are split; later halves get the next numbers.

        :param points: all points, (N + n, d), the new ones last.
        """
        result = object.__new__(type(self))
        result.size, result._root = self.size, self._root
        result._splits, result.blocks = list(self._splits), list(self.blocks)
        points, num_before = points.cpu(), len(points) - num_new
        places = self.place(points[num_before:])
        touched = places.unique().tolist()
        for block in touched:
            rows = torch.cat([self.blocks[block], num_before + (places == block).nonzero().squeeze(-1)])
            node = result._grow(points, rows, block)
            if node >= 0:
                result._replace(-1 - block, node)
        return result, touched

    def without(self, points: Tensor, is_removed: Tensor) -> tuple[Self, list[int]]:
        """The partition of the remaining points, and the old numbers of its blocks; empty blocks join the next box.

        :param points: all points, (N, d).
        :param is_removed: which of them go, (N,).
        """
        points = points.cpu()
        left, numbers = points[~is_removed], (~is_removed).cumsum(0) - 1
        blocks = [numbers[rows[~is_removed[rows]]] for rows in self.blocks]
        gone = {(column, value) for row in points[is_removed].tolist() for column, value in enumerate(row)}
        result = object.__new__(type(self))
        result.size, result._splits, result.blocks, before = self.size, [], [], []

        def kept(node: int) -> int | None:
            """The new number of a node; None where it has no rows."""
            if node < 0:
                if not len(blocks[-1 - node]):
                    return None
                before.append(-1 - node)
                result.blocks.append(blocks[-1 - node])
                return -len(before)
            split = self._splits[node]
            below, above = kept(split.left), kept(split.right)
            if below is None or above is None:
                return above if below is None else below
            threshold = split.threshold
            if (split.column, threshold) in gone:
                column = left[:, split.column]
                threshold = float(column[column <= threshold].max())
            result._splits.append(_Split(split.column, threshold, below, above))
            return len(result._splits) - 1

        root = kept(self._root)
        result._root = -1 if root is None else root
        return result, before

    def _replace(self, old: int, new: int) -> None:
        """Let the split above a node, other than those below the new one, have the new node in its place."""
        if self._root == old:
            self._root = new
            return
        for number, split in enumerate(self._splits[:new]):
            if old in (split.left, split.right):
                left, right = (new if child == old else child for child in (split.left, split.right))
                self._splits[number] = split._replace(left=left, right=right)
                return

    def block_of_rows(self) -> Tensor:
        """The number of the block of every row, (N,), on the CPU."""
        numbers = torch.empty(sum(map(len, self.blocks)), dtype=torch.long)
        for number, rows in enumerate(self.blocks):
            numbers[rows] = number
        return numbers

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors from which :meth:`from_state_dict` makes the partition again."""
        splits = [(split.column, split.left, split.right) for split in self._splits]
        return {
            "size": torch.tensor(self.size),
            "root": torch.tensor(self._root),
            "thresholds": torch.tensor([split.threshold for split in self._splits], dtype=torch.float64),
            "splits": torch.tensor(splits, dtype=torch.long).reshape(-1, 3),
            "blocks": self.block_of_rows(),
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Tensor]) -> Self:
        """The partition that a state was taken of."""
        result = object.__new__(cls)
        result.size, result._root = int(state["size"]), int(state["root"])
        pairs = zip(state["splits"].tolist(), state["thresholds"].tolist(), strict=True)
        result._splits = [_Split(column, threshold, left, right) for (column, left, right), threshold in pairs]
        order, counts = (
            state["blocks"].argsort(stable=True),
            state["blocks"].bincount(minlength=len(result._splits) + 1),
        )
        result.blocks = list(order.split(counts.tolist()))
        return result


def _median_split(points: Tensor) -> tuple[int, float, Tensor]:
    """The column and threshold that halve some points, and which are at most it; equal points are halved in order."""
    sample = points[:: max(1, len(points) // _SAMPLE)]
    inner, outer = sample.quantile(0.95, 0) - sample.quantile(0.05, 0), points.amax(0) - points.amin(0)
    column = int((inner if bool(inner.any()) else outer).argmax())
    values = points[:, column]
    threshold = values.median()
    if not bool((values > threshold).any()) and bool(outer[column]):
        threshold = values[values < threshold].max()
    if bool((values > threshold).any()):
        return column, float(threshold), values <= threshold
    return 0, float("inf"), torch.arange(len(points)) < len(points) // 2
