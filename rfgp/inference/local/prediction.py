"""Predictions from features and the residual of near rows: of the block that a point lies in, or its nearest rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..._support import checks
from .residual import Conditional, ResidualProcess
from .rows import LocalRows

_SHARED, _BYTES = 512, 2**23
"""So many points share the features of the rows near them; features of so many bytes are used at once, in the cache."""
_MOST_BYTES = 2**30
"""The features of all rows are kept where they take at most so much memory."""


class LocalFeatures(NamedTuple):
    r"""What predictions at N points need beside the posterior of the weights.

    :param features: :math:`\phi_* - S \Phi_n`, (N, D), without the output scale.
    :param columns: S times the columns of the near rows, (N, K).
    :param variance: the variance of the residual given the near rows, (N,).
    """

    features: Tensor
    columns: Tensor
    variance: Tensor


class LocalConditioning:
    """The residual at points given that of the nearest rows, or of their blocks (``num_neighbors`` None).

    :param dtype: of covariances, features and products.
    :param together: so many points, one after the other, are the cells of one place, whose near rows they share.
    """

    def __init__(
        self,
        kernel: Any,
        rows: LocalRows,
        num_neighbors: int | None,
        dtype: torch.dtype = torch.float64,
        together: int = 1,
    ) -> None:
        self.residual, self.rows, self.together = ResidualProcess(kernel, dtype), rows, together
        self.num_neighbors = None if num_neighbors is None else min(num_neighbors, len(rows.x))
        self._features: Tensor | None = None

    def keep_features(self, num_points: int) -> None:
        """Make the features of all rows once, where predictions at so many points need more than that."""
        size = len(self.rows.x) * self.residual.kernel.num_scalar_features
        is_worth_it = self.num_neighbors is not None and num_points * self.num_neighbors > len(self.rows.x)
        if self._features is None and is_worth_it and size * self.residual.dtype.itemsize <= _MOST_BYTES:
            self._features = torch.cat([self.residual.features(part) for part in self.rows.x.split(_SHARED)])

    def at(self, x: Tensor) -> LocalFeatures:
        """What predictions need at points (N, d)."""
        parts, order = [], []
        for points, given, conditional in self.conditionals(x):
            columns = conditional.weights.double() @ self.rows.columns[given]
            variance = conditional.covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0.0)
            parts.append([part.flatten(0, -2) for part in (conditional.features, columns, variance.unsqueeze(-1))])
            order.append(points.flatten())
        inverse = torch.cat(order).argsort()
        features, columns, variance = (torch.cat(every)[inverse] for every in zip(*parts, strict=True))
        return LocalFeatures(features / self.residual.root, columns, variance.squeeze(-1))

    def conditionals(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor, Conditional]]:
        """The numbers of some of the points (N, d), of the rows near them, and the conditional values there.

        The numbers are (n,) of points in one block, or (n, t) of points that share their m near rows, (n, m).
        """
        for points, given in self._near_rows(x):
            features = self.residual.features(x[points.flatten()]).unflatten(0, points.shape)
            if self._features is None:
                unique, inverse = given.unique(return_inverse=True)
                near = self.residual.features(self.rows.x[unique])
            else:
                near, inverse = self._features, given
            if self.num_neighbors is None:
                yield points, given, self._conditional(x[points], features, given, _rows_of(near, inverse))
                continue
            at_once = max(1, _BYTES // (near.element_size() * self.num_neighbors * near.shape[-1]))
            for part in torch.arange(len(points), device=x.device).split(at_once):
                chunk = x[points[part]], features[part], given[part], _rows_of(near, inverse[part])
                yield points[part], given[part], self._conditional(*chunk)

    def _conditional(self, x: Tensor, features: Tensor, given: Tensor, near: Tensor) -> Conditional:
        """What follows of rows at points x (..., t, d)."""
        return self.residual.conditional(x, features, self.rows.x[given], near, self.rows.variances[given])

    def _near_rows(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The numbers of some points and of the rows near them, in chunks of points of the same blocks."""
        near = self.rows.points(x)
        places = self.rows.partition.place(near)
        device = x.device
        if self.num_neighbors is None:
            for block in places.unique().tolist():
                points = (places == block).nonzero().squeeze(-1)
                yield points.to(device), self.rows.partition.blocks[block].to(device)
            return
        cells = torch.arange(len(x)).view(-1, self.together)
        for part in places[cells[:, 0]].argsort(stable=True).split(max(1, _SHARED // self.together)):
            points = cells[part]
            yield points.to(device), self._nearest(near, points[:, 0], self.num_neighbors).to(device)

    def _nearest(self, near: Tensor, points: Tensor, count: int) -> Tensor:
        """The numbers (n, m) of the rows nearest to the points with numbers (n,)."""
        if not bool(near[points].square().sum(-1).isfinite().all()):
            raise checks.overflow(near[points])
        return self.rows.nearest.query(near[points], count)


def _rows_of(values: Tensor, index: Tensor) -> Tensor:
    """The rows (..., D) of a matrix (N, D) at an index (...)."""
    return values.index_select(0, index.flatten()).unflatten(0, index.shape)
