"""Predictions from features and the residual of near rows: of the block that a point lies in, or its nearest rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ..posterior.posterior import WeightPosterior
from .residual import Conditional, ResidualProcess
from .rows import LocalRows

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel
    from .cells import CellKernel
    from .systems import LocalSystems


_SHARED, _BYTES = 512, 2**23
"""So many points share the features of the rows near them; features of so many bytes are used at once, in the cache."""
_MOST_BYTES = 2**30
"""The features of all rows are kept where they take at most so much memory."""
_FEW_ROWS, _ENTRIES = 512, 2**23
"""Groups of points with so many near rows are treated together; so many covariances of near rows are held at a time."""


class LocalFeatures(NamedTuple):
    r"""What predictions at N points need beside the posterior of the weights.

    :param features: :math:`\phi_* - S \Phi_n`, (N, D), without the output scale.
    :param columns: S times the columns of the near rows, (N, K).
    :param joint: the covariance of the residual of t points of one place given their near rows, (N / t, t, t).
    """

    features: Tensor
    columns: Tensor
    joint: Tensor

    @property
    def variance(self) -> Tensor:
        """The variance of the residual given the near rows, (N,)."""
        return self.joint.diagonal(dim1=-2, dim2=-1).flatten().clamp_min(0.0)


class _NearWeights(NamedTuple):
    """What the rows nearest to N points tell of each.

    :param given: the numbers of the rows, (N, m).
    :param weights: S, (N, m).
    :param features: g, output scale included, (N, D).
    :param variance: of the residual given the rows, (N,).
    """

    given: Tensor
    weights: Tensor
    features: Tensor
    variance: Tensor


class LocalConditioning:
    """The residual at points given that of the nearest rows, or of their blocks (``num_neighbors`` None).

    :param dtype: of covariances, features and products.
    :param together: so many points, one after the other, are the cells of one place, whose near rows they share.
    """

    def __init__(
        self,
        kernel: FeatureKernel | CellKernel,
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
            columns, joint = conditional.weights.double() @ self.rows.columns[given], conditional.covariance
            if self.num_neighbors is None:
                joint = joint.diagonal().reshape(-1, 1, 1)
            parts.append([conditional.features.flatten(0, -2), columns.flatten(0, -2), joint])
            order.append(points.reshape(-1, self.together))
        places = torch.cat(order)
        features, columns, joint = (torch.cat(every) for every in zip(*parts, strict=True))
        inverse = places.flatten().argsort()
        return LocalFeatures(features[inverse] / self.residual.root, columns[inverse], joint[places[:, 0].argsort()])

    def covariance(self, x: Tensor) -> Tensor:
        r"""The covariance (..., N, N) at points (..., N, d) of what their near rows do not tell of the residual.

        .. math:: e_* = r_* - S_* (r_n + \epsilon_n), \qquad
            \mathrm{Cov}(e_*, e_\circ) = A K A^\top - g_* g_\circ^\top + S_* \Sigma S_\circ^\top, \qquad A = (1, -S)

        for points in the same block, with K between them and the rows near either, and zero for points in different
        blocks. Where both have the same near rows this is :math:`R_{*\circ} - S_* R_{n\circ}`.
        """
        groups = x.reshape(-1, *x.shape[-2:])
        if self.num_neighbors is None:
            blocks = map(self.of_blocks, groups)
            dense = [_block_diagonal(x.new_zeros(x.shape[-2], dtype=self.residual.dtype), found) for found in blocks]
            return torch.stack(dense).reshape(*x.shape[:-1], x.shape[-2])
        near = _NearWeights(*(part.unflatten(0, groups.shape[:2]) for part in self._near_weights(groups.flatten(0, 1))))
        if len(groups) > 1 and near.given[0].numel() <= _FEW_ROWS:
            places = self.place(groups.flatten(0, 1)).view(groups.shape[:2]).to(x.device)
            is_same = places.unsqueeze(-1) == places.unsqueeze(-2)
            return (is_same * self._of_groups(groups, near)).reshape(*x.shape[:-1], x.shape[-2])
        every = zip(groups, map(_NearWeights._make, zip(*near, strict=True)), strict=True)
        dense = [_block_diagonal(of.variance, self._of_blocks(group, of)) for group, of in every]
        return torch.stack(dense).reshape(*x.shape[:-1], x.shape[-2])

    def of_blocks(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The numbers (n,) of the points (N, d) in every block, and their :meth:`covariance`, (n, n)."""
        if self.num_neighbors is not None:
            yield from self._of_blocks(x, self._near_weights(x))
            return
        for points, _, conditional in self.conditionals(x):
            yield points, conditional.covariance

    def _of_blocks(self, x: Tensor, near: _NearWeights) -> Iterator[tuple[Tensor, Tensor]]:
        places = self.place(x)
        for block in places.unique().tolist():
            points = (places == block).nonzero().squeeze(-1).to(x.device)
            parts = _NearWeights(*(part[points].unsqueeze(0) for part in near))
            yield points, self._of_groups(x[points].unsqueeze(0), parts).squeeze(0)

    def _of_groups(self, x: Tensor, near: _NearWeights) -> Tensor:
        """The covariances (G, t, t) at groups of points (G, t, d), as if each lay in one block."""
        given, weights, features, variance = near
        if x.shape[1] == 1:
            return variance.unsqueeze(-1)
        chunks = torch.arange(len(x), device=x.device).split(max(1, _ENTRIES // given[0].numel() ** 2))
        explained = torch.cat([self._explained(x[c], given[c], weights[c]) for c in chunks])
        covariance = explained - features @ features.mT
        return covariance + torch.diag_embed(variance - covariance.diagonal(dim1=-2, dim2=-1))

    def _near_weights(self, x: Tensor) -> _NearWeights:
        order, parts = [], []
        for points, given, conditional in self.conditionals(x):
            order.append(points.flatten())
            variance = conditional.covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0.0).unsqueeze(-1)
            of_points = given.unsqueeze(-2).expand(conditional.weights.shape)
            found = of_points, conditional.weights, conditional.features, variance
            parts.append([part.flatten(0, 1) for part in found])
        inverse = torch.cat(order).argsort()
        given, weights, features, variance = (torch.cat(part)[inverse] for part in zip(*parts, strict=True))
        return _NearWeights(given, weights, features, variance.squeeze(-1))

    def _explained(self, x: Tensor, given: Tensor, weights: Tensor) -> Tensor:
        r"""The covariances :math:`A K A^\top + S \Sigma S^\top` of groups (g, t, d), for weights (g, t, m) of rows."""
        if len(x) == 1:
            rows, inverse = given.unique(return_inverse=True)
            rows = rows.unsqueeze(0)
        else:
            rows = given.flatten(1)
            inverse = torch.arange(rows.shape[-1], device=x.device).view(given.shape[1:]).expand_as(given)
        spread = weights.new_zeros(*x.shape[:2], rows.shape[-1]).scatter(-1, inverse, weights)
        noise, near = self.rows.variances[rows].to(weights), self.rows.x[rows]
        result = self.residual.prior(x, x) - spread @ self.residual.prior(near, x)
        for part in torch.arange(rows.shape[-1], device=x.device).split(max(1, _ENTRIES // rows.numel())):
            is_same = rows.unsqueeze(-1) == rows[:, part].unsqueeze(-2)
            within = self.residual.prior(near, near[:, part]) + is_same * noise.unsqueeze(-1)
            across = self.residual.prior(x, near[:, part]) - spread @ within
            result = result - across @ spread[..., part].mT
        return result

    def place(self, x: Tensor) -> Tensor:
        """The number of the block that each of some points (N, d) lies in, (N,), on the CPU."""
        return self.rows.partition.place(self.rows.points(x))

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
        near, device = self.rows.points(x), x.device
        if self.num_neighbors is None:
            places = self.rows.partition.place(near)
            for block in places.unique().tolist():
                points = (places == block).nonzero().squeeze(-1)
                yield points.to(device), self.rows.partition.blocks[block].to(device)
            return
        cells = torch.arange(len(x), device=device).view(-1, self.together)
        given = self._nearest(near, cells[:, 0], self.num_neighbors)
        for part in self.rows.block_of[given[:, 0]].argsort(stable=True).split(max(1, _SHARED // self.together)):
            yield cells[part], given[part]

    def _nearest(self, near: Tensor, points: Tensor, count: int) -> Tensor:
        """The numbers (n, m) of the rows nearest to the points with numbers (n,)."""
        return self.rows.nearest.query(near[points], count)


def _block_diagonal(values: Tensor, blocks: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """The matrix (N, N) of blocks with the numbers of their rows, of the dtype of values (N,)."""
    result = torch.zeros(len(values), len(values), dtype=values.dtype, device=values.device)
    for rows, block in blocks:
        result = result.index_put((rows.unsqueeze(-1), rows), block)
    return result


def _rows_of(values: Tensor, index: Tensor) -> Tensor:
    """The rows (..., D) of a matrix (N, D) at an index (...)."""
    return values.index_select(0, index.flatten()).unflatten(0, index.shape)


class SystemMoments(NamedTuple):
    """Means (S, N) and variances (S, N) of S systems at N points, without their mean functions, in float64."""

    mean: Tensor
    variance: Tensor


class SystemConditioning(LocalConditioning):
    r"""The residual at points given that of near rows, for every system: conditional values have an axis of systems.

    .. math:: g_s = \phi_* - S_s \Phi_n, \qquad S_s = R_{*n} C_s^{-1}, \qquad R_{**} - S_s R_{n*}
    """

    def __init__(
        self, systems: LocalSystems, rows: LocalRows, num_neighbors: int | None, dtype: torch.dtype = torch.float64
    ) -> None:
        super().__init__(systems.kernel, rows, num_neighbors, dtype, systems.cells_of_point)
        self.systems = systems

    def _conditional(self, x: Tensor, features: Tensor, given: Tensor, near: Tensor) -> Conditional:
        residual, rows = self.residual, self.rows
        cross = residual.cross_covariance(x, features, rows.x[given], near)
        covariance = residual.covariance(rows.x[given], near)
        weights = self.systems.weights(covariance, cross, rows.columns[given], rows.variances[given].to(cross))
        shape = weights.shape[-3:-1]
        by_row = weights.flatten(-3, -2)
        return Conditional(
            self._left(x, features, weights, given, near),
            weights,
            residual.covariance(x, features).unsqueeze(-3) - (by_row @ cross.mT).unflatten(-2, shape),
        )

    def _left(self, x: Tensor, features: Tensor, weights: Tensor, given: Tensor, near: Tensor) -> Tensor:
        """Features (..., S, t, D) at points (..., t, d) less what weights (..., S, t, m) explain by those of rows."""
        return features.unsqueeze(-3) - (weights.flatten(-3, -2) @ near).unflatten(-2, weights.shape[-3:-1])

    def moments(self, x: Tensor, posterior: WeightPosterior, has_variance: bool = True) -> SystemMoments:
        """Means and variances at points (N, d); the means alone are quicker."""
        order, means, variances = [], [], []
        for points, given, conditional in self.conditionals(x):
            targets = self.systems.targets(self.rows.columns[given])
            values = (conditional.weights.double() @ targets.unsqueeze(-1)).squeeze(-1)
            features = _by_system(conditional.features)
            means.append(
                (features @ posterior.mean.to(features)).squeeze(-1) + _by_system(values.unsqueeze(-1)).squeeze(-1)
            )
            if has_variance:
                left = conditional.covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0.0).unsqueeze(-1)
                root = torch.linalg.solve_triangular(posterior.factor.to(features), features.mT, upper=False)
                variances.append((root.square().sum(-2) + _by_system(left).squeeze(-1)).double())
            order.append(points.flatten())
        inverse = torch.cat(order).argsort()
        mean = torch.cat(means, dim=-1)[:, inverse]
        return SystemMoments(mean, torch.cat(variances, dim=-1)[:, inverse] if has_variance else torch.zeros_like(mean))


def _by_system(values: Tensor) -> Tensor:
    """Values (S, t, D), or (n, S, t, D) of n places, as (S, N, D)."""
    return values.transpose(0, 1).flatten(1, 2) if values.dim() == 4 else values
