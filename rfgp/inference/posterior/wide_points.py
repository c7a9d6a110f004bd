"""Means and variances of a wide grid at points, as trigonometric series of the mean and of draws."""

from __future__ import annotations

import torch
from torch import Tensor

from ..._support import checks
from ...linalg.frequency_grid import half_of, series_of_weights
from ...linalg.trigonometric_series import TrigonometricSeries
from .point_predictor import PointMoments, PointPredictor
from .regression import Regression
from .wide_grid import WidePosterior

_POINTS = 2**15


class WidePointPredictor(PointPredictor):
    """A :class:`PointPredictor` of the mean and the draws of a :class:`WidePosterior`, by non-uniform FFTs."""

    @torch.no_grad()
    def __init__(self, regression: Regression, posterior: WidePosterior, dtype: torch.dtype) -> None:
        super().__init__(regression, posterior, dtype)
        kernel = regression.kernel
        grid = kernel.frequency_grid
        self._grid = grid.clone()
        scaled = self._factor.scalar_weights(torch.cat([posterior.mean, posterior.root], dim=-1)).squeeze(-2)
        weights = kernel.summed_amplitudes.unsqueeze(-1) * scaled
        self._series = TrigonometricSeries(series_of_weights(weights, grid.orders), half_of(grid.orders))
        self._near_and_far = self._residual(torch.cat([grid.middle, grid.far]).to(dtype))

    @torch.no_grad()
    def __call__(self, x: Tensor, variance: bool = True) -> PointMoments:
        points = checks.finite(checks.inputs(x)).to(self.dtype)
        parts = [self._at(part) for part in points.split(_POINTS)]
        found = [part for part in parts if part is not None]
        if not parts or len(found) < len(parts):
            return super().__call__(x, variance)
        means, variances = zip(*found, strict=True)
        return PointMoments(torch.cat(means), torch.cat(variances) if variance else None)

    def _at(self, points: Tensor) -> tuple[Tensor, Tensor] | None:
        """Means and variances (N, 1); None where features are faster."""
        phases = self._grid.phases(points)
        series = self._series.values(phases)
        if series is None or self._near_and_far is None:
            return None
        is_near = self._grid.is_inside(phases).all(-1, keepdim=True)
        values = (series.mT * is_near).to(self.dtype)
        residual = torch.where(is_near, self._near_and_far[:1], self._near_and_far[1:])
        return self._plus_mean(values[:, :1], points), values[:, 1:].square().sum(-1, keepdim=True) + residual
