"""Variances at single points as sums of squares, with what does not depend on the points computed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

_COLUMNS = 128


class PointVariance:
    r"""Variances of functions at points, from their scalar features.

    .. math:: v_t(x) = |\psi(x) R_t|^2 \qquad \text{or} \qquad v_t(x) = \sum_k (\psi(x) R)_k^2 M_{kt}

    Roots are kept in blocks of columns, without the zero rows of a block.

    :param roots: a root (n, K) for each function; or one root, with ``mixing``.
    :param mixing: M, (K, T); default: the squares of a root are summed.
    """

    def __init__(self, roots: Sequence[Tensor], mixing: Tensor | None = None) -> None:
        self._blocks = [_blocks(root) for root in roots]
        self._mixing = mixing

    def to(self, dtype: torch.dtype) -> Self:
        """The same in another real precision."""
        result = object.__new__(type(self))
        result._blocks = [[(start, cast(block, dtype)) for start, block in blocks] for blocks in self._blocks]
        result._mixing = None if self._mixing is None else self._mixing.to(dtype)
        return result

    def matrices(self, width: int) -> list[Tensor]:
        """The matrices (n, n), for ``width`` scalar features, whose quadratic forms the variances are."""
        result = []
        count = len(self._blocks) if self._mixing is None else self._mixing.shape[-1]
        for output in range(count):
            blocks, column = self._blocks[0 if self._mixing is not None else output], 0
            total = blocks[0][1].new_zeros(width, width)
            for start, block in blocks:
                rows, end = slice(start, start + len(block)), column + block.shape[-1]
                right = block if self._mixing is None else block * self._mixing[column:end, output]
                total[rows, rows] += right @ block.mT
                column = end
            result.append(total)
        return result

    def __call__(self, features: Tensor) -> Tensor:
        """The variances (N, T) at points with scalar features (N, n) of the dtype of the roots."""
        if self._mixing is None:
            return torch.stack([_sum_of_squares(features, blocks) for blocks in self._blocks], dim=-1)
        products = [features[:, start : start + len(block)] @ block for start, block in self._blocks[0]]
        return torch.cat(products, dim=-1).square_() @ self._mixing


def _blocks(root: Tensor) -> list[tuple[int, Tensor]]:
    """Blocks of columns, each with the first of its rows that are not zero, from there to the last."""
    blocks = []
    for block in root.split(_COLUMNS, dim=-1):
        used = block.any(dim=-1).nonzero().squeeze(-1)
        if len(used):
            first, last = int(used[0]), int(used[-1])
            blocks.append((first, block[first : last + 1].contiguous()))
    return blocks


def _sum_of_squares(features: Tensor, blocks: Sequence[tuple[int, Tensor]]) -> Tensor:
    """The squared norms (N,) of the rows of features times a root."""
    total = features.new_zeros(len(features), dtype=features.dtype.to_real())
    for start, block in blocks:
        total += torch.linalg.vector_norm(features[:, start : start + len(block)] @ block, dim=-1).square_()
    return total


def cast(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Real or complex values in a real precision, or the complex one that goes with it."""
    return values.to(dtype.to_complex() if values.is_complex() else dtype)
