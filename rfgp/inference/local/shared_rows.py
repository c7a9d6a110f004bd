"""Predictions at single points, in clusters that share the rows near them, by the exact kernel alone."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from linear_operator import to_dense
from torch import Tensor

from ...linalg.cholesky_factor import factor_of
from ...linalg.nearest import NearestRows, scaled_points
from ..posterior.draws import detached
from .partition import BlockPartition

if TYPE_CHECKING:
    from gpytorch.kernels import Kernel

_MOST_ROWS = 1024
"""So many rows are shared by the points of a cluster."""
_FEWEST_POINTS, _MOST_POINTS = 32, 256
_ROWS_PER_POINT = 8
"""A cluster has so many points that as many times as many rows, if they are as dense, lie where it lies."""
_FEWEST_NEIGHBORS = 32
_FEW_POINTS = 256
"""So many are predicted in float64, which then costs little."""
_CHECKED, _LARGEST_ERROR = 3, 0.01
"""Clusters of rows that are predicted in both dtypes, and by how many standard deviations the two may differ."""


class SharedRows:
    r"""A function at single points given rows near them, under an exact kernel and without features.

    .. math:: E f_* = k_{*R} (K_{RR} + \Sigma_R)^{-1} y_R, \qquad
        \mathrm{Var} f_* = k_{**} - k_{*R} (K_{RR} + \Sigma_R)^{-1} k_{R*}

    Points that are close share their rows R, and one Cholesky factor: the nearest rows of all of them, in the order of
    their ranks, up to 1,024. Matrices for many points are made in float32 where that moves predictions at three
    clusters of rows by less than a hundredth of their standard deviations, and has a factor.

    :param kernel: the exact kernel of one output.
    :param x: the inputs of the rows, (N, d).
    :param targets: their targets less the mean function, (N,), in float64.
    :param variances: their noise variances, (N,), in float64.
    :param scales: what inputs are multiplied by before distances are measured, (d,) or (d, r).
    :param nearest: what finds rows near points; default: made here.

    Source: A. V. Vecchia, Estimation and model identification for continuous spatial processes, 1988; R. B. Gramacy
    and D. W. Apley, Local Gaussian process approximation for large computer experiments, 2015.
    """

    def __init__(
        self,
        kernel: Kernel,
        x: Tensor,
        targets: Tensor,
        variances: Tensor,
        scales: Tensor,
        nearest: NearestRows | None = None,
    ) -> None:
        self.kernel = detached(copy.deepcopy(kernel)).to(torch.float64)
        self._kernels = {torch.float64: self.kernel, torch.float32: copy.deepcopy(self.kernel).to(torch.float32)}
        self.x, self.targets, self.variances, self.scales = x, targets, variances, scales
        self.nearest = NearestRows(scaled_points(x, scales)) if nearest is None else nearest

    @torch.no_grad()
    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The means, without the mean function, and the variances of the function at points (n, d): (n,) each.

        :raises ValueError: for inputs too large for distances between them.
        """
        means, variances = x.new_empty(2, len(x), dtype=torch.float64)
        is_safe = len(x) > _FEW_POINTS and self._is_safe
        for cluster, rows in self._clusters(scaled_points(x, self.scales)):
            means[cluster], variances[cluster] = self._moments(x[cluster], rows, is_safe)
        return means, variances

    @torch.no_grad()
    def left_out(self, folds: Tensor) -> tuple[Tensor, Tensor]:
        """The same at the rows themselves, each given those of other folds (N,)."""
        if len(folds.unique()) == len(folds):
            return self._each_left_out()
        means, variances = self.targets.new_empty(2, len(self.x))
        for fold in folds.unique():
            inside, others = folds == fold, folds != fold
            rows = SharedRows(self.kernel, self.x[others], self.targets[others], self.variances[others], self.scales)
            means[inside], variances[inside] = rows(self.x[inside])
        return means, variances

    def _each_left_out(self) -> tuple[Tensor, Tensor]:
        r"""The same at the rows themselves, each given the others.

        .. math:: y_i - \mu_{-i} = (P y)_i / P_{ii}, \qquad V_{-i} = 1 / P_{ii} - \Sigma_i, \qquad
            P = (K_{RR} + \Sigma_R)^{-1}

        Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, Eq. 5.10 to 5.12.
        """
        means, variances = self.targets.new_empty(2, len(self.x))
        for cluster, near in self._clusters(self.nearest.points):
            rows = torch.cat([cluster, near[~torch.isin(near, cluster)]])
            matrix = to_dense(self.kernel(self.x[rows]))
            matrix.diagonal().add_(self.variances[rows])
            precision = torch.cholesky_inverse(factor_of(matrix))
            own = 1.0 / precision.diagonal()
            means[cluster] = (self.targets[rows] - own * (precision @ self.targets[rows]))[: len(cluster)]
            variances[cluster] = (own - self.variances[rows]).clamp_min(0.0)[: len(cluster)]
        return means, variances

    def _clusters(self, points: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The numbers of scaled points that are close, and of the rows that they share."""
        size = min(max(_FEWEST_POINTS, _MOST_ROWS * len(points) // (_ROWS_PER_POINT * len(self.x))), _MOST_POINTS)
        count = min(max(_FEWEST_NEIGHBORS, 4 * _MOST_ROWS // min(size, max(len(points), 1))), len(self.x), _MOST_ROWS)
        near = self.nearest.query(points, count).cpu().numpy()
        for cluster in BlockPartition(points, size).blocks:
            yield cluster.to(self.x.device), _shared(near[cluster.numpy()]).to(self.x.device)

    def _moments(self, x: Tensor, rows: Tensor, is_safe: bool) -> tuple[Tensor, Tensor]:
        """Means and variances in float32 where that is safe and has a factor, else in float64."""
        if is_safe:
            with contextlib.suppress(ValueError):
                return self._given(x, rows, torch.float32)
        return self._given(x, rows, torch.float64)

    @functools.cached_property
    def _is_safe(self) -> bool:
        """Whether rows, as points of clusters, are predicted well enough in float32."""
        some = torch.linspace(0, len(self.x) - 1, _CHECKED).long()
        near = self.nearest.query(self.nearest.points[some], min(_MOST_ROWS, len(self.x)))
        return all(self._is_close(rows) for rows in near)

    def _is_close(self, rows: Tensor) -> bool:
        """Whether the first of some rows are predicted about the same in both dtypes."""
        x = self.x[rows[:_FEWEST_POINTS]]
        mean, variance = self._given(x, rows, torch.float64)
        rounded, other = self._moments(x, rows, is_safe=True)
        least = self.variances[rows].min()
        spread = (variance + least).sqrt()
        error = torch.maximum((rounded - mean).abs(), ((other + least).sqrt() - spread).abs())
        return bool((error < _LARGEST_ERROR * spread).all())

    def _given(self, x: Tensor, rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Means and variances at points (n, d) given the rows with these numbers."""
        kernel, near, points = self._kernels[dtype], self.x[rows].to(dtype), x.to(dtype)
        matrix = to_dense(kernel(near))
        matrix.diagonal().add_(self.variances[rows].to(dtype))
        right = torch.cat([to_dense(kernel(near, points)), self.targets[rows].to(dtype).unsqueeze(-1)], dim=-1)
        white = torch.linalg.solve_triangular(factor_of(matrix), right, upper=False)
        cross, target = white[:, :-1], white[:, -1]
        variance = kernel(points, diag=True) - cross.square().sum(0)
        return (target @ cross).double(), variance.double().clamp_min(0.0)


def _shared(near: np.ndarray) -> Tensor:
    """The numbers of the rows nearest to points, of which near (n, k) has those of each: of low ranks first."""
    by_rank = near.T.ravel()
    _, first = np.unique(by_rank, return_index=True)
    return torch.from_numpy(by_rank[np.sort(first)[:_MOST_ROWS]])
