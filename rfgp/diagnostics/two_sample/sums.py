"""Sums over pairs of rows of two samples: from sums of features in linear time, or from kernel values in chunks."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..._support import checks
from ...approximation import FeatureKernel
from ...kernels.checked import check_columns
from ...linalg import row_chunks

_TILE = 2048
_ROWS = 256
"""Rows of features that are summed in float64 at a time, which stay in the cache."""
_COPIES = 4
"""By how much a chunk of features is smaller than others, so that it stays in the cache with its inputs."""
_KEPT_BYTES = 64 * 2**20
"""Up to which size the features of the chosen rows of a sample are kept."""


class PairBlock(NamedTuple):
    """Kernel values of a few rows of x and y, (a, a), (b, b), (a, b), and sums over other rows, (a,) and (b,) each."""

    xx: Tensor
    yy: Tensor
    xy: Tensor
    sums_x: tuple[Tensor, Tensor]
    sums_y: tuple[Tensor, Tensor]


class PairSums(abc.ABC):
    """Sums of kernel values over pairs of different rows, and blocks of the chosen rows of x and of y."""

    def __init__(self, kernel: Kernel, x: Tensor, y: Tensor, chosen: tuple[Tensor, Tensor] | None = None) -> None:
        self.kernel, self.x, self.y = kernel, x, y
        none = torch.empty(0, dtype=torch.long, device=x.device)
        self.chosen_x, self.chosen_y = (none, none) if chosen is None else chosen

    @abc.abstractmethod
    def totals(self) -> tuple[float, float, float]:
        """Sums over pairs of different rows of x, over those of y, and over a row of each."""

    @abc.abstractmethod
    def block(self, part_x: Tensor, part_y: Tensor) -> PairBlock:
        """The values of some of the chosen rows of either sample, and their sums with all others."""


class FeaturePairSums(PairSums):
    r"""Sums over pairs from :math:`S = \sum_i \phi(x_i)` and :math:`\sum_i |\phi(x_i)|^2`, in O(N D)."""

    kernel: FeatureKernel

    def __init__(
        self, kernel: FeatureKernel, x: Tensor, y: Tensor, chosen: tuple[Tensor, Tensor] | None = None
    ) -> None:
        super().__init__(kernel, x, y, chosen)
        self.features_x, self.sum_x, self.squares_x = _feature_sums(kernel, x, self.chosen_x)
        self.features_y, self.sum_y, self.squares_y = _feature_sums(kernel, y, self.chosen_y)

    def totals(self) -> tuple[float, float, float]:
        within_x = self.sum_x @ self.sum_x - self.squares_x
        within_y = self.sum_y @ self.sum_y - self.squares_y
        return within_x.item(), within_y.item(), (self.sum_x @ self.sum_y).item()

    def block(self, part_x: Tensor, part_y: Tensor) -> PairBlock:
        a = self._features(self.features_x, self.x, self.chosen_x, part_x)
        b = self._features(self.features_y, self.y, self.chosen_y, part_y)
        xx, yy = a @ a.mT, b @ b.mT
        sums_x = a @ self.sum_x - xx.diagonal(), a @ self.sum_y
        sums_y = b @ self.sum_y - yy.diagonal(), b @ self.sum_x
        return PairBlock(xx, yy, a @ b.mT, sums_x, sums_y)

    def _features(self, kept: Tensor | None, rows: Tensor, chosen: Tensor, part: Tensor) -> Tensor:
        """Features of chosen rows in float64, from those that were kept where there are any."""
        return (features_of(self.kernel, rows[chosen[part]]) if kept is None else kept[part]).double()


class DenseSums(PairSums):
    """Sums over pairs from kernel values in tiles, each of which is computed once, in O(N^2)."""

    def __init__(self, kernel: Kernel, x: Tensor, y: Tensor, chosen: tuple[Tensor, Tensor] | None = None) -> None:
        super().__init__(kernel, x, y, chosen)
        self.within_x, self.within_y = (_rows_within(kernel, rows) for rows in (x, y))
        self.x_to_y, self.y_to_x = x.new_zeros(len(x), dtype=torch.float64), y.new_zeros(len(y), dtype=torch.float64)
        for i in _tiles(len(x)):
            for j in _tiles(len(y)):
                values = dense(kernel, x[i], y[j])
                self.x_to_y[i] += values.sum(1)
                self.y_to_x[j] += values.sum(0)

    def totals(self) -> tuple[float, float, float]:
        return self.within_x.sum().item(), self.within_y.sum().item(), self.x_to_y.sum().item()

    def block(self, part_x: Tensor, part_y: Tensor) -> PairBlock:
        chosen_x, chosen_y = self.chosen_x[part_x], self.chosen_y[part_y]
        a, b = self.x[chosen_x], self.y[chosen_y]
        sums_x = self.within_x[chosen_x], self.x_to_y[chosen_x]
        sums_y = self.within_y[chosen_y], self.y_to_x[chosen_y]
        return PairBlock(dense(self.kernel, a, a), dense(self.kernel, b, b), dense(self.kernel, a, b), sums_x, sums_y)


def pair_sums(kernel: Kernel, x: Tensor, y: Tensor, chosen: tuple[Tensor, Tensor] | None = None) -> PairSums:
    """The sums in linear time where the kernel has features, and in quadratic time otherwise."""
    if isinstance(kernel, FeatureKernel):
        return FeaturePairSums(kernel, x, y, chosen)
    return DenseSums(kernel, x, y, chosen)


def features(kernel: FeatureKernel, rows: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Chunks of rows with their features, real and imaginary parts side by side."""
    width = max(features_of(kernel, rows[:1]).shape[-1], rows.shape[-1])
    for part in row_chunks(len(rows), width, _COPIES * rows.element_size()):
        yield part, features_of(kernel, rows[part])


def features_of(kernel: FeatureKernel, rows: Tensor) -> Tensor:
    """The features of rows, real and imaginary parts side by side."""
    phi = kernel.features(rows)
    return torch.view_as_real(phi).flatten(-2) if phi.is_complex() else phi


def dense(kernel: Kernel, x: Tensor, y: Tensor) -> Tensor:
    """Kernel values (N, M) in float64."""
    values: Tensor = kernel(x, y).to_dense().double()
    return values


def check_samples(kernel: Any, x: Any, y: Any, fewest: int) -> None:
    """Raise where the kernel is none of one output, or the samples are not two tables with the same columns."""
    checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel", "such as RBFKernel(), or one from rfgp.approximate")
    for name, rows in (("x", x), ("y", y)):
        if checks.finite(checks.inputs(rows, name=name), name).dim() != 2 or len(rows) < fewest:
            raise ValueError(f"expected {name} of shape (N, d) with N >= {fewest}, got {tuple(rows.shape)}; pass rows")
    if x.shape[1] != y.shape[1] or x.dtype != y.dtype:
        raise ValueError(
            f"expected two samples with the same columns and dtype, got {x.shape[1]} of {x.dtype} and {y.shape[1]} of "
            f"{y.dtype}; describe both alike"
        )
    if not isinstance(kernel, FeatureKernel):
        check_columns(kernel, x)
    if len(kernel.batch_shape) or kernel.num_outputs_per_input(x[:1], y[:1]) != 1:
        raise ValueError("expected a kernel of one output without batches, got another; compare outputs one by one")


def checked_value(value: float, rows: Tensor) -> float:
    """Return a discrepancy, or raise where kernel values or features have overflowed."""
    if not math.isfinite(value):
        raise ValueError(
            f"expected rows with finite kernel values and features in {rows.dtype}, got entries up to "
            f"{float(rows.abs().max()):.3g}, with which they overflow; rescale the rows, or use float64"
        )
    return value


def _feature_sums(kernel: FeatureKernel, rows: Tensor, chosen: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
    """The features of chosen rows, None where they would take much memory, and sums of features and of squares."""
    size = features_of(kernel, rows[:1]).shape[-1]
    total, squares = rows.new_zeros(size, dtype=torch.float64), rows.new_zeros((), dtype=torch.float64)
    fits = len(chosen) * size * rows.element_size() <= _KEPT_BYTES
    kept = rows.new_empty(len(chosen), size) if fits else None
    position = torch.full((len(rows),), -1, device=rows.device)
    position[chosen] = torch.arange(len(chosen), device=rows.device)
    for part, phi in features(kernel, rows):
        if kept is not None:
            is_chosen = position[part] >= 0
            kept[position[part][is_chosen]] = phi[is_chosen]
        for some in phi.split(_ROWS):
            exact = some.double()
            total += exact.sum(0)
            squares += exact.square().sum()
    return kept, total, squares


def _rows_within(kernel: Kernel, rows: Tensor) -> Tensor:
    """The sum of the kernel values of every row with all others."""
    sums = rows.new_zeros(len(rows), dtype=torch.float64)
    tiles = _tiles(len(rows))
    for a, i in enumerate(tiles):
        for j in tiles[a:]:
            values = dense(kernel, rows[i], rows[j])
            if i == j:
                values.fill_diagonal_(0.0)
            else:
                sums[j] += values.sum(0)
            sums[i] += values.sum(1)
    return sums


def _tiles(length: int) -> list[slice]:
    return [slice(start, min(start + _TILE, length)) for start in range(0, length, _TILE)]
