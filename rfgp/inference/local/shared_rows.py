"""Predictions at single points, in clusters that share the rows near them, by the exact kernel alone."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch
from linear_operator import to_dense
from torch import Tensor

from ..._support import checks
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
_LARGEST_ERROR = 0.01
"""Standard deviations by which a mean in float32 may be wrong, and the share of a deviation by which that may be."""


class SharedRows:
    r"""A function at single points given rows near them, under an exact kernel and without features.

    .. math:: E f_* = k_{*R} (K_{RR} + \Sigma_R)^{-1} y_R, \qquad
        \mathrm{Var} f_* = k_{**} - k_{*R} (K_{RR} + \Sigma_R)^{-1} k_{R*}

    Points that are close share their rows R, and one Cholesky factor: the nearest rows of all of them, in the order of
    their ranks, up to 1,024. Matrices are made in float32 where that moves predictions of the first cluster by less
    than a hundredth of their standard deviations.

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
        self._kernels = {dtype: detached(copy.deepcopy(kernel)).to(dtype) for dtype in (torch.float64, torch.float32)}
        self.x, self.targets, self.variances, self.scales = x, targets, variances, scales
        self.nearest = NearestRows(scaled_points(x, scales)) if nearest is None else nearest

    @torch.no_grad()
    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The means, without the mean function, and the variances of the function at points (n, d): (n,) each.

        :raises ValueError: for inputs too large for distances between them.
        """
        points = scaled_points(x, self.scales)
        if not bool(points.square().sum(-1).isfinite().all()):
            raise checks.overflow(points)
        size = min(max(_FEWEST_POINTS, _MOST_ROWS * len(x) // (_ROWS_PER_POINT * len(self.x))), _MOST_POINTS)
        count = min(max(_FEWEST_NEIGHBORS, 4 * _MOST_ROWS // min(size, max(len(x), 1))), len(self.x), _MOST_ROWS)
        near = self.nearest.query(points, count).numpy()
        means, variances = x.new_empty(2, len(x), dtype=torch.float64)
        dtype = None
        for cluster in BlockPartition(points, size).blocks:
            rows = _shared(near[cluster.numpy()]).to(x.device)
            dtype = self._dtype(x[cluster], rows) if dtype is None else dtype
            means[cluster], variances[cluster] = self._given(x[cluster], rows, dtype)
        return means, variances

    def _dtype(self, x: Tensor, rows: Tensor) -> torch.dtype:
        """The dtype in which points of a cluster are predicted well enough from its rows."""
        mean, variance = self._given(x, rows, torch.float64)
        try:
            rounded, other = self._given(x, rows, torch.float32)
        except ValueError:  # no positive definite matrix
            return torch.float64
        spread = (variance + self.variances[rows].min()).sqrt()
        error = torch.maximum((rounded - mean).abs(), ((other + self.variances[rows].min()).sqrt() - spread).abs())
        return torch.float32 if bool((error < _LARGEST_ERROR * spread).all()) else torch.float64

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
