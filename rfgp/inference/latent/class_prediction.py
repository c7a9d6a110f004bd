"""Predictions of several functions from features, and from their residual at near rows, which couple them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
    from ...approximation.random_feature_kernel import RandomFeatureKernel

_FEW, _BYTES = 128, 2**23
"""So many points are looked at once, or as many as have covariances of near rows of so many bytes, in the cache."""


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

    Points are alone with their neighbors, or together with those of their block.

    :param rows: with columns for targets, f - m (Q), slope b (Q), and the curvature of the terms in blocks.
    """

    def __init__(
        self, kernel: RandomFeatureKernel, rows: LocalRows, num_neighbors: int | None, num_functions: int
    ) -> None:
        super().__init__(kernel, rows, num_neighbors)
        self.num_functions = num_functions

    def groups(self, x: Tensor, is_joint: bool = True) -> Iterator[NearClasses]:
        """The functions at points (N, d), in groups; if not joint, points of a block may be in several."""
        for points, given in self._near_rows(x):
            if self.num_neighbors is None:
                for part in [points] if is_joint else points.split(_FEW):
                    yield self._given(x, part.unsqueeze(0), given.unsqueeze(0))
                continue
            at_once = max(1, _BYTES // (8 * self.num_functions * self.num_neighbors**2))
            for part in torch.arange(len(points), device=x.device).split(at_once):
                yield self._given(x, points[part], given[part])

    def _given(self, x: Tensor, points: Tensor, given: Tensor) -> NearClasses:
        """The functions at points with numbers (g, t), given rows with numbers (g, m)."""
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
        return NearClasses(
            (count * points.unsqueeze(-2) + functions).flatten(-2),
            (direct.flatten(-3, -2) + (weights.mT @ rest).sum(-3)).squeeze(-1),
            by_features - (weights.mT @ near).movedim(-3, -2).flatten(-2),
            own - (wide.mT @ weights).sum(-3),
        )

    def _scaled_features(self, x: Tensor, numbers: Tensor) -> Tensor:
        """The features (g, Q, n, D), or (g, 1, n, D) for a common scale, of inputs with numbers (g, n)."""
        unique, inverse = numbers.unique(return_inverse=True)
        scalar = self.residual.scalar_features(x[unique]).unsqueeze(-2)
        return (self.residual.root.reshape(-1, 1) * scalar)[inverse].transpose(-3, -2)

    def _of_all(self, values: Tensor) -> Tensor:
        """Values (g, Q, n, k) of all functions, from those of all or of one for all."""
        return values.expand(-1, self.num_functions, -1, -1)


class ClassPrediction:
    """The posterior of several functions at inputs (N, d), less their mean.

    :param posterior: that of the weights of all functions, one after the other, (Q D, 1).
    """

    def __init__(self, conditioning: ClassConditioning, x: Tensor, posterior: WeightPosterior) -> None:
        self.conditioning, self.x, self.posterior = conditioning, x, posterior
        self.size = len(x) * conditioning.num_functions
        self._known = list(conditioning.groups(x)) if len(x) <= _FEW else None

    def groups(self, is_joint: bool = True) -> Iterable[NearClasses]:
        """The functions at the inputs, in groups; those of many inputs are made again every time."""
        return self.conditioning.groups(self.x, is_joint) if self._known is None else self._known

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
