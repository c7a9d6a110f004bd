"""Values of a map at batches of points, with their error where they are computed in float32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...inference import PointMoments
from .points import MapPart

FLOAT32_LIMIT = 1e-3
"""A batch whose float32 values are off by more prior standard deviations than that is computed in float64."""

_SAMPLE = 32


class Float32Error(NamedTuple):
    """The largest errors of float32 values at a sample of points, in prior standard deviations.

    :param mean: the error of the mean.
    :param stddev: that of the standard deviation; zero for maps without variances.
    """

    mean: float
    stddev: float


class BatchValues(NamedTuple):
    """Values of a map from one row on, (n,) or (n, T) by name, and the error of float32 values."""

    start: int
    arrays: dict[str, np.ndarray]
    error: Float32Error | None
    is_replaced: bool

    @property
    def num_rows(self) -> int:
        """How many rows."""
        return len(self.arrays["mean"])


class Evaluator:
    """Means and variances (n, T) of a model at batches of points (n, d), plus noise variances (T,)."""

    def __init__(
        self, predictor: Any, exact: Any = None, noise: Tensor | None = None, has_variance: bool = True
    ) -> None:
        self.predictor, self.exact, self.noise, self.has_variance = predictor, exact, noise, has_variance

    def of(self, part: MapPart) -> Iterator[BatchValues]:
        """The values of a part, batch by batch."""
        for start, x in part.batches():
            yield self.at(x, start)

    def at(self, x: Tensor, start: int = 0) -> BatchValues:
        """The values at one batch of points (n, d)."""
        try:
            return self._at(x, start)
        except ValueError as error:
            raise ValueError(f"rows {start} to {start + len(x)} of the map: {error}") from error

    @torch.no_grad()
    def _at(self, x: Tensor, start: int) -> BatchValues:
        values = self.predictor(x, self.has_variance)
        error, is_replaced = None, False
        if self.exact is not None:
            error = self._error(x, values)
            if not all(value <= FLOAT32_LIMIT for value in error):
                error, is_replaced = Float32Error(0.0, 0.0), True
                values = self.exact(x, self.has_variance)
        return BatchValues(start, self._arrays(values), error, is_replaced)

    def _error(self, x: Tensor, values: PointMoments) -> Float32Error:
        """The error at a few rows of the batch."""
        rows = torch.linspace(0, len(x) - 1, min(_SAMPLE, len(x)), device=x.device).long()
        wanted = self.exact(x[rows], self.has_variance)
        unit = self.exact.prior_variance(x[rows]).sqrt().clamp_min(torch.finfo(torch.float64).tiny)
        mean = ((values.mean[rows] - wanted.mean).abs() / unit).max()
        if values.variance is None:
            return Float32Error(float(mean), 0.0)
        deviations = values.variance[rows].double().sqrt() - wanted.variance.sqrt()
        return Float32Error(float(mean), float((deviations.abs() / unit).max()))

    def _arrays(self, values: PointMoments) -> dict[str, np.ndarray]:
        dtype = self.predictor.dtype
        mean, variance = values
        arrays = {"mean": mean.to(dtype.to_complex() if mean.is_complex() else dtype)}
        if variance is not None:
            arrays["variance"] = (variance if self.noise is None else variance + self.noise.to(variance)).to(dtype)
        return {name: value.squeeze(-1).cpu().numpy() for name, value in arrays.items()}
