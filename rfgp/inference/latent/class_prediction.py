"""Predictions of several functions from features, and from their residual at near rows, which couple them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ..._support.gpytorch_names import keep_arguments
from ..local.prediction import LocalConditioning
from ..local.rows import LocalRows
from ..local.system_regression import SystemCovariance
from ..posterior.posterior import WeightPosterior
from .local_laplace import columns_of, side_by_side, sites_of

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel

_FEW, _BYTES = 128, 2**23
"""So many points are looked at once, or as many as have covariances of near rows of so many bytes, in the cache."""
_TOGETHER = 2048
"""So many values of functions at points of a block, each with its neighbors, have a covariance with each other."""


class NearClasses(NamedTuple):
    r"""Q functions at groups of t points given near rows, :math:`f_* = m_* + v + g w + \epsilon`.

    :param cells: the numbers of points and functions, (g, Q t).
    :param values: v, (g, Q t).
    :param features: g, (g, Q t, Q D).
    :param covariance: of :math:`\epsilon`, (g, Q t, Q t).
    """

    cells: Tensor
    values: Tensor
    features: Tensor
    covariance: Tensor


class ClassConditioning(LocalConditioning):
    r"""The residuals of Q functions at points given those of near rows, with G of the sites of these.

    .. math:: v = R_{*n} \big(b + G (f - m - R b)\big), \qquad g = \phi_* - R_{*n} G \Phi_n, \qquad
        \epsilon \sim N(0, R_{**} - R_{*n} G R_{n*})

    Points of a block are together, each with the rows near it:

    .. math:: \mathrm{Cov}(\epsilon_*, \epsilon_\circ) = R_{*\circ} - S_* R_{n\circ} - R_{*n'} S_\circ^\top
        + S_* R_{nn'} S_\circ^\top + \textstyle\sum_i S_{*i} T_{\circ i}^\top, \qquad
        S = R_{*n} G, \quad T = R_{*n} - S R_{nn}

    with a sum over the rows that are near both, whose sites have :math:`S_i = T_i W_i`.

    :param rows: with columns for targets, f - m (Q), slope b (Q), and the curvature of the terms in blocks.
    """

    def __init__(self, kernel: FeatureKernel, rows: LocalRows, num_neighbors: int | None, num_functions: int) -> None:
        super().__init__(kernel, rows, num_neighbors)
        self.num_functions = num_functions

    def groups(self, x: Tensor, is_joint: bool = True) -> Iterator[NearClasses]:
        """The functions at points (N, d), in groups; if not joint, points of a block may be in several."""
        if self.num_neighbors is not None and is_joint:
            places, near = self.place(x), self.rows.points(x)
            for block in places.unique().tolist():
                of_block = (places == block).nonzero().squeeze(-1)
                for points in of_block.to(x.device).split(max(1, _TOGETHER // self.num_functions)):
                    yield self._together(x, points, self._nearest(near, points, self.num_neighbors))
            return
        for points, given in self._near_rows(x):
            if self.num_neighbors is None:
                for part in [points] if is_joint else points.split(_FEW):
                    yield self._given(x, part.unsqueeze(0), given.unsqueeze(0))[0]
                continue
            for part in self._chunks(points):
                yield self._given(x, points[part], given[part])[0]

    def _chunks(self, points: Tensor) -> Sequence[Tensor]:
        """Numbers of points that are looked at together, each with its neighbors."""
        at_once = max(1, _BYTES // (8 * self.num_functions * (self.num_neighbors or 1) ** 2))
        return torch.arange(len(points), device=points.device).split(at_once)

    def _together(self, x: Tensor, points: Tensor, given: Tensor) -> NearClasses:
        """The functions at the points (t,) of a block as one group, given rows (t, m) near each."""
        parts = [self._given(x, points[part].unsqueeze(-1), given[part]) for part in self._chunks(points)]
        alone = NearClasses(*map(torch.cat, zip(*[part[0] for part in parts], strict=True)))
        rows, places = given.unique(return_inverse=True)
        passed, rest = (
            _of_rows(torch.cat(values), places, len(rows)) for values in zip(*[part[1:] for part in parts], strict=True)
        )
        features, near = self._scaled_features(x, points[None]), self._scaled_features(self.rows.x, rows[None])
        at, near_rows, residual = x[points], self.rows.x[rows], self.residual
        own = side_by_side(self._of_all(residual.covariance(at, features))).flatten(-3, -2)
        cross = side_by_side(self._of_all(residual.cross_covariance(near_rows, near, at, features)))
        inner = self._of_all(residual.covariance(near_rows, near)) @ passed + rest - 2.0 * cross
        covariance = own + (passed.mT @ inner).sum(-3)
        cells, values = (part.mT.reshape(1, -1) for part in alone[:2])
        by_features = alone.features.transpose(0, 1).flatten(0, 1).unsqueeze(0)
        return NearClasses(cells, values, by_features, 0.5 * (covariance + covariance.mT))

    def _given(self, x: Tensor, points: Tensor, given: Tensor) -> tuple[NearClasses, Tensor, Tensor]:
        r"""The functions at points with numbers (g, t), given rows with numbers (g, m).

        :returns: also :math:`S^\top` and :math:`T^\top`, (g, Q, m, Q t).
        """
        count, residual = self.num_functions, self.residual
        at, near_rows = x[points].unsqueeze(-3), self.rows.x[given].unsqueeze(-3)
        features, near = self._scaled_features(x, points), self._scaled_features(self.rows.x, given)
        latent, slope, curvature = self.rows.columns[given][..., 1:].tensor_split((count, 2 * count), dim=-1)
        covariance = residual.covariance(near_rows, near)
        cross = residual.cross_covariance(at, features, near_rows, near)
        wide = side_by_side(self._of_all(cross.mT))
        weights = sites_of(covariance, curvature.mT, count).times(wide)
        direct, rest = cross @ columns_of(slope), columns_of(latent) - covariance @ columns_of(slope)
        by_features = side_by_side(self._of_all(features)).flatten(-3, -2)
        own = side_by_side(self._of_all(residual.covariance(at, features))).flatten(-3, -2)
        functions = torch.arange(count, device=x.device).unsqueeze(-1)
        found = NearClasses(
            (count * points.unsqueeze(-2) + functions).flatten(-2),
            (direct.flatten(-3, -2) + (weights.mT @ rest).sum(-3)).squeeze(-1),
            by_features - (weights.mT @ near).movedim(-3, -2).flatten(-2),
            own - (wide.mT @ weights).sum(-3),
        )
        return found, weights, wide - covariance @ weights

    def _scaled_features(self, x: Tensor, numbers: Tensor) -> Tensor:
        """The features (g, Q, n, D), or (g, 1, n, D) for a common scale, of inputs with numbers (g, n)."""
        unique, inverse = numbers.unique(return_inverse=True)
        scalar = self.residual.scalar_features(x[unique]).unsqueeze(-2)
        return (self.residual.root.reshape(-1, 1) * scalar)[inverse].transpose(-3, -2)

    def _of_all(self, values: Tensor) -> Tensor:
        """Values (g, Q, n, k) of all functions, from those of all or of one for all."""
        return values.expand(-1, self.num_functions, -1, -1)


def _of_rows(values: Tensor, places: Tensor, count: int) -> Tensor:
    """Values (t, Q, m, Q) of functions at points and rows near them, as those of so many rows, (1, Q, count, Q t)."""
    wide = values.new_zeros(*values.shape[:2], count, values.shape[-1])
    wide = wide.scatter(-2, places[:, None, :, None].expand_as(values), values)
    return wide.permute(1, 2, 3, 0).flatten(-2).unsqueeze(0)


class ClassPrediction:
    """The posterior of several functions at inputs (N, d), less their mean.

    :param posterior: that of the weights of all functions, one after the other, (Q D, 1).
    """

    def __init__(self, conditioning: ClassConditioning, x: Tensor, posterior: WeightPosterior) -> None:
        self.conditioning, self.x, self.posterior = conditioning, x, posterior
        self.size = len(x) * conditioning.num_functions
        self._known: dict[bool, list[NearClasses]] = {}

    def groups(self, is_joint: bool = True) -> Iterable[NearClasses]:
        """The functions at the inputs, in groups; those of many inputs are made again every time."""
        if len(self.x) > _FEW:
            return self.conditioning.groups(self.x, is_joint)
        is_joint = is_joint or self.conditioning.num_neighbors is None
        if is_joint not in self._known:
            self._known[is_joint] = list(self.conditioning.groups(self.x, is_joint))
        return self._known[is_joint]

    def moments(self) -> tuple[Tensor, Tensor]:
        """Means and variances of all cells of points and functions, (N Q,)."""
        means, variances, order = [], [], []
        for cells, values, features, covariance in self.groups(is_joint=False):
            means.append((values + (features @ self.posterior.mean).squeeze(-1)).flatten())
            own = covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0.0)
            variances.append((own + self.posterior.covariance_root(features).square().sum(-1)).flatten())
            order.append(cells.flatten())
        inverse = torch.cat(order).argsort()
        return torch.cat(means)[inverse], torch.cat(variances)[inverse]

    @torch.no_grad()
    def of_points(self) -> Tensor:
        """The covariances of the functions at every point, (N, Q, Q)."""
        count = self.conditioning.num_functions
        result = self.x.new_empty(len(self.x), count, count, dtype=torch.float64)
        for cells, _, features, covariance in self.groups(is_joint=False):
            root = self.posterior.covariance_root(features)
            shape = len(cells), count, -1, count, cells.shape[-1] // count
            of_points = (covariance + root @ root.mT).reshape(shape).diagonal(dim1=2, dim2=4)
            points = cells.unflatten(-1, (count, -1))[:, 0] // count
            result[points] = of_points.movedim(-1, 1)
        return result

    @torch.no_grad()
    def covariance(self) -> Tensor:
        """The covariance of all cells, (N Q, N Q)."""
        groups = list(self.groups())
        root = self.x.new_empty(self.size, len(self.posterior.mean), dtype=torch.float64)
        for group in groups:
            root[group.cells] = self.posterior.covariance_root(group.features)
        result = root @ root.mT
        for group in groups:
            result[group.cells.unsqueeze(-1), group.cells.unsqueeze(-2)] += group.covariance
        return result

    @torch.no_grad()
    def draws(self, num_samples: int) -> Tensor:
        """Draws of all cells less their means, (S, N Q)."""
        weights = self.posterior.deviations(num_samples)
        result = self.x.new_empty(self.size, num_samples, dtype=torch.float64)
        for group in self.groups():
            values, vectors = torch.linalg.eigh(group.covariance)
            noise = torch.randn(*group.cells.shape, num_samples, dtype=torch.float64, device=self.x.device)
            own = vectors @ (values.clamp_min(0.0).sqrt().unsqueeze(-1) * noise)
            result[group.cells] = group.features @ weights + own
        return result.mT


class ClassCovariance(SystemCovariance):
    """The covariance of a :class:`ClassPrediction`, of which draws need no matrix of all cells."""

    def __init__(self, variance: Tensor, dense: Callable[[], Tensor], prediction: ClassPrediction) -> None:
        super().__init__(variance, dense)
        keep_arguments(self, prediction=prediction)
        self.prediction = prediction

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """Draws (S, N Q)."""
        return self.prediction.draws(num_samples).to(self.dtype)
