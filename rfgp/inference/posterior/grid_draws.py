"""Functions drawn with the features of a frequency grid, which are trigonometric series."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ..._support import checks
from ...linalg.frequency_grid import series_of_weights
from ...linalg.trigonometric_series import TrigonometricSeries
from ..sums.grid_statistics import grid_of
from ..sums.mean_basis import mean_values
from .draws import FeatureDraws

_POINTS, _SERIES = 2**15, 16
"""How many points and series are evaluated at a time."""


class GridDraws(FeatureDraws):
    """The same; without gradients points that share coordinates, as on a regular grid, cost one input's frequencies."""

    def __call__(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() or not isinstance(x, Tensor) or x.dim() != 2:
            return super().__call__(x)
        parts = [self._at(part) for part in checks.finite(checks.inputs(x)).split(_POINTS)]
        found = [part for part in parts if part is not None]
        if len(found) < len(parts):
            return super().__call__(x)
        values = torch.cat(found, dim=-3)
        has_tasks = values.shape[-2] > 1 or self.regression.noise.targets.has_tasks
        return (values if has_tasks else values.squeeze(-2)).movedim(-1, 0)

    def take(self, index: Tensor) -> GridDraws:
        return GridDraws(self.regression, super().take(index).weights)

    def _at(self, points: Tensor) -> Tensor | None:
        """The functions at points (N, d), (..., N, T, S); None where they are no faster as series."""
        grid, _ = grid_of(self.regression.kernel)
        phases = grid.phases(points)
        parts = [values for series in self._series if (values := series.values(phases)) is not None]
        if not parts:
            return None
        values = torch.cat(parts) * grid.is_inside(phases).all(-1)
        by_output = values.unflatten(0, self._columns.shape[1:]).movedim((-3, -2, -1), (-2, -1, -3))
        mean = mean_values(self.regression.mean, points).unsqueeze(-1)
        return (by_output + mean).to(points.dtype)

    @functools.cached_property
    def _columns(self) -> Tensor:
        """The weights of plain cosines and sines for every class, output and function, (n, ..., T, S)."""
        _, amplitudes = grid_of(self.regression.kernel)
        weights = self.regression.factor().scalar_weights(self.weights)
        return (amplitudes.unsqueeze(-1).unsqueeze(-1) * weights).movedim(-3, 0)

    @functools.cached_property
    def _series(self) -> list[TrigonometricSeries]:
        orders = grid_of(self.regression.kernel)[0].orders
        half = tuple(orders.abs().amax(0).tolist())
        parts = self._columns.flatten(1).split(_SERIES, dim=-1)
        return [TrigonometricSeries(series_of_weights(part, orders), half) for part in parts]
