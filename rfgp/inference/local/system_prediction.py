"""Predictions of several systems at points, given the rows near them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..posterior.posterior import WeightPosterior
from .prediction import LocalConditioning
from .residual import Conditional
from .rows import LocalRows
from .systems import LocalSystems


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
