"""Means and variances of the features of a frequency grid at points that share coordinates, as trigonometric series."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..._support import checks
from ...linalg.frequency_grid import cross_of_lags, gram_of_lags, half_of, lag_half, series_of_weights
from ...linalg.trigonometric_series import TrigonometricSeries
from ..sums.grid_statistics import grid_of
from .point_predictor import PointMoments, PointPredictor, weights_by_output
from .posterior import GaussianPosterior
from .regression import Regression
from .wide_grid import WidePosterior

_MOST_SERIES = 64
"""For more outputs, or classes, variances come from features."""


class GridPointPredictor(PointPredictor):
    r"""A :class:`PointPredictor` whose means and variances are trigonometric series.

    .. math:: E f(x) = \sum_j c_j \cos(\omega_j^\top x) + \dots, \qquad
        \mathrm{Var} f(x) = \sum_{j, k} C_{jk} \cos((\omega_j - \omega_k)^\top x) + \dots

    For points of a table, as of a regular map, a point costs as many products as the last input has frequencies, and
    others cost a non-uniform FFT.
    """

    @torch.no_grad()
    def __init__(self, regression: Regression, posterior: GaussianPosterior, dtype: torch.dtype) -> None:
        super().__init__(regression, posterior, dtype)
        grid, amplitudes = grid_of(regression.kernel)
        self._grid = grid.clone()
        weights, variance = weights_by_output(self._factor, posterior), posterior.point_variance(self._factor)
        series = [_of_weights(amplitudes * column, grid.orders) for column in weights.mT]
        matrices = variance.matrices(grid.num_features)
        series += [_of_matrix(amplitudes.unsqueeze(-1) * matrix * amplitudes, grid.orders) for matrix in matrices]
        self._series = TrigonometricSeries(torch.stack(series), lag_half(grid.orders))
        self._near_and_far = self._residual(torch.cat([grid.middle, grid.far]).to(dtype))

    @torch.no_grad()
    def __call__(self, x: Tensor, variance: bool = True) -> PointMoments:
        points = checks.finite(checks.inputs(x)).to(self.dtype)
        phases = self._grid.phases(points)
        series = None if self._near_and_far is None else self._series.values(phases)
        if series is None or self._near_and_far is None:
            return super().__call__(x, variance)
        values = series.mT.to(self.dtype)
        is_near = self._grid.is_inside(phases).all(-1, keepdim=True)
        values = torch.where(is_near, values, 0.0)
        mean = self._plus_mean(values[:, : self.num_outputs], points)
        if not variance:
            return PointMoments(mean, None)
        residual = torch.where(is_near, self._near_and_far[:1], self._near_and_far[1:])
        return PointMoments(mean, values[:, self.num_outputs :].clamp_min(0.0) + residual)


def has_series(regression: Regression, posterior: GaussianPosterior) -> bool:
    """Whether a regression has the features of a grid, and real functions that are not too many."""
    kernel, noise = regression.kernel, regression.noise
    is_real = not noise.is_complex and not kernel.is_complex
    outputs = max(noise.num_systems, noise.num_outputs)
    return kernel.frequency_grid is not None and is_real and outputs <= _MOST_SERIES


def _of_weights(weights: Tensor, orders: Tensor) -> Tensor:
    """The coefficients (2, L) of a function of weights (D,): the adjoint of the features' sums."""
    return _adjoint(cross_of_lags, weights, orders)


def _of_matrix(matrix: Tensor, orders: Tensor) -> Tensor:
    """The coefficients (2, L) of a quadratic form (D, D) in the features: the adjoint of their Gram matrix."""
    return _adjoint(gram_of_lags, matrix, orders)


def _adjoint(function: Callable[[Tensor, Tensor], Tensor], values: Tensor, orders: Tensor) -> Tensor:
    size = math.prod(2 * half + 1 for half in lag_half(orders))
    with torch.enable_grad():
        lags = torch.zeros(2, size, dtype=torch.float64, device=values.device, requires_grad=True)
        (gradient,) = torch.autograd.grad(function(lags, orders), lags, values)
    return gradient


_POINTS = 2**15


class WidePointPredictor(PointPredictor):
    """A :class:`PointPredictor` of the mean and the draws of a :class:`WidePosterior`, by non-uniform FFTs."""

    @torch.no_grad()
    def __init__(self, regression: Regression, posterior: WidePosterior, dtype: torch.dtype) -> None:
        super().__init__(regression, posterior, dtype)
        grid, amplitudes = grid_of(regression.kernel)
        self._grid = grid.clone()
        scaled = self._factor.scalar_weights(torch.cat([posterior.mean, posterior.root], dim=-1)).squeeze(-2)
        weights = amplitudes.unsqueeze(-1) * scaled
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
