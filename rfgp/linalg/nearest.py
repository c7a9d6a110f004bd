"""The nearest rows of a table, by a tree or by all distances."""

from __future__ import annotations

import functools

import scipy
import torch
from torch import Tensor

from .._support import checks
from .._support.threads import num_workers

_FEW_COLUMNS, _FEW_DIMENSIONS, _MANY_ROWS, _LEAF = 12, 9.0, 100_000, 32
"""Up to so many columns a tree finds near rows faster than all distances do, and up to so many dimensions of more rows;
rows of one of its leaves."""
_SAMPLE, _AMONG, _NEAREST = 256, 10_000, 16
"""Points that tell the dimension, among so many others, and their nearest ones that do."""
_CACHED, _MOST, _ENOUGH = 2**20, 2**23, 64
"""Distances that are held at a time: those that stay in the cache, and more where these are of few points."""
_SET = 16
"""Columns of a set, of which the smallest value is found first."""
_ON_DEVICE = 2**26
"""Distances that are held at a time on a device."""


def scaled_points(x: Tensor, scales: Tensor) -> Tensor:
    """Inputs (n, d) times scales (d,), without columns of zeros, or times a matrix (d, r); in float64."""
    rows = x.detach().double()
    if scales.dim() > 1:
        return rows @ scales
    if not bool(scales.all()):  # a copy of the columns takes six times as long as their product
        seen = scales != 0 if bool(scales.any()) else slice(0, 1)
        rows, scales = rows[:, seen], scales[seen]
    return rows * scales


class NearestRows:
    """Finds the rows of points (N, d) that are nearest to others; with many columns up to the rounding of float32.

    On the CPU rows of few columns are in a tree; on a device all distances are computed.
    """

    def __init__(self, points: Tensor) -> None:
        self.points = points.detach().double()

    @functools.cached_property
    def tree(self) -> scipy.spatial.KDTree:
        """A tree of the points."""
        return scipy.spatial.KDTree(self.points.numpy(), _LEAF, compact_nodes=False, balanced_tree=False)

    @functools.cached_property
    def _has_few_columns(self) -> bool:
        """Whether a tree finds near rows, as columns are few, or many rows lie near a surface of few dimensions.

        Twenty columns of zeros and ones that stand for one text are about two dimensions.
        """
        if len(self.points) <= _MANY_ROWS or self.points.shape[-1] <= _FEW_COLUMNS:
            return self.points.shape[-1] <= _FEW_COLUMNS
        return _dimension(self.points) <= _FEW_DIMENSIONS

    @functools.cached_property
    def _rounded(self) -> tuple[Tensor, Tensor]:
        """The points less their mean in float32, and half of their squared norms."""
        rounded = (self.points - self.points.mean(0)).float()
        return rounded, 0.5 * rounded.square().sum(-1)

    def query(self, points: Tensor, count: int, slack: float = 0.0) -> Tensor:
        """The numbers (n, count) of the nearest rows to finite points (n, d), in float64 and on the device of the rows.

        :param slack: a tree may return rows that are farther by so much of the distance, which saves most of the time.
        :raises ValueError: for points too large for distances between them.
        """
        if not bool(points.square().sum(-1).isfinite().all()):
            raise checks.overflow(points)
        if points.device.type != "cpu":
            chunks = points.split(max(1, _ON_DEVICE // len(self.points)))
            return torch.cat([self._distances(part).topk(count, largest=False)[1] for part in chunks])
        if self._has_few_columns:
            found = self.tree.query(points.numpy(), count, eps=slack, workers=num_workers())[1]
            return torch.from_numpy(found).reshape(len(points), count)
        rows, half = self._rounded
        others = (points - self.points.mean(0)).float()
        chunks = others.split(max(_CACHED // len(rows), min(_ENOUGH, _MOST // len(rows)), 1))
        held = half.new_empty(len(chunks[0]), len(rows))  # once: new ones for every chunk would leave holes in memory
        products = (torch.addmm(half, c, rows.mT, alpha=-1.0, out=held[: len(c)]) for c in chunks)
        return torch.cat([_smallest(values, count) for values in products])

    def _distances(self, points: Tensor) -> Tensor:
        """The distances (n, N) to all rows; of many columns, squares less those of the points, half, in float32."""
        if points.shape[-1] <= _FEW_COLUMNS:
            return torch.cdist(points, self.points, compute_mode="donot_use_mm_for_euclid_dist")
        rows, half = self._rounded
        return torch.addmm(half, (points - self.points.mean(0)).float(), rows.mT, alpha=-1.0)


def _dimension(points: Tensor) -> float:
    r"""The dimension of the surface near which points (N, d) lie, of more than 10,256 points.

    .. math:: \hat m^{-1} = \operatorname{mean}_{i, j} \log \frac{T_k(x_i)}{T_j(x_i)}

    Here :math:`T_j(x)` is the distance from x to its j-th nearest point, j < k = 16, of a random part of the
    points; zero where they are all equal.

    Source: Levina and Bickel (2004), maximum likelihood estimation of intrinsic dimension, equation 8.
    """
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))[: _SAMPLE + _AMONG]
    some = points[order]
    distances = torch.cdist(some[:_SAMPLE], some[_SAMPLE:]).topk(_NEAREST, largest=False)[0]
    distances = distances[distances[:, -1] > 0.0].clamp_min(torch.finfo(distances.dtype).tiny)
    return 1.0 / float((distances[:, -1:] / distances[:, :-1]).log().mean()) if len(distances) else 0.0


def _smallest(values: Tensor, count: int) -> Tensor:
    """The columns (n, count) of the smallest of values (n, N): they lie in the sets whose least values are smallest."""
    size = values.shape[-1] // _SET
    if size < 2 * count:
        return values.topk(count, largest=False)[1]
    sets = values[:, : _SET * size].unflatten(-1, (_SET, size)).amin(1).topk(count, largest=False, sorted=False)[1]
    columns = (sets.unsqueeze(1) + torch.arange(0, _SET * size, size).unsqueeze(-1)).flatten(1)
    rest = torch.arange(_SET * size, values.shape[-1]).expand(len(values), -1)
    columns = torch.cat([columns, rest], dim=-1)
    return columns.gather(-1, values.gather(-1, columns).topk(count, largest=False)[1])
