"""Means and variances of a regression in blocks at single points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..._support import checks
from ..posterior.point_predictor import PointMoments
from .prediction import LocalConditioning
from .regression import LocalRegression
from .system_regression import SystemRegression

if TYPE_CHECKING:
    from ..posterior.posterior import GaussianPosterior

_ROWS = 4096
_SMALLEST_NOISE = 3e-4
"""Below so much noise, relative to the prior variance, covariances are made in float64."""


class LocalPoints:
    """Means and variances at single points, given the rows near them, without gradients and joint covariances.

    It has the training rows, can be pickled, and does not change with the model.

    :param dtype: of results, and of covariances and products too, where float32 costs a third, unless the noise is less
        than 3e-4 of the prior variance.
    """

    @torch.no_grad()
    def __init__(
        self, regression: LocalRegression | SystemRegression, posterior: GaussianPosterior, dtype: torch.dtype
    ) -> None:
        self.regression, self.posterior, self.dtype = regression.detached(), posterior, dtype
        self._input_dtype = next(iter(regression.kernel.parameters())).dtype
        self._moments: Any = self.regression.point_moments
        rows, systems = self.regression.local, self.regression.systems
        smallest = systems.relative_noise(rows.columns, rows.variances, rows.x[:1])
        is_safe = smallest > _SMALLEST_NOISE
        self._conditioning: LocalConditioning = self.regression.conditioning(dtype if is_safe else torch.float64)

    @torch.no_grad()
    def __call__(self, x: Tensor, variance: bool = True) -> PointMoments:
        """Means and, if ``variance``, variances (N, T) at points x (N, d).

        :raises ValueError: for bad inputs.
        """
        checks.flag("variance", variance)
        points = checks.finite(checks.inputs(x)).to(self._input_dtype)
        self._conditioning.keep_features(len(points))
        parts = [self._chunk(chunk, variance) for chunk in points.split(_ROWS)]
        means, variances = zip(*parts, strict=True)
        mean = checks.no_overflow(torch.cat(means), points).to(self.dtype)
        return PointMoments(mean, torch.cat(variances).to(self.dtype) if variance else None)

    def _chunk(self, x: Tensor, has_variance: bool) -> tuple[Tensor, Tensor]:
        """The moments in float64 where float32 has no Cholesky factor."""
        try:
            return self._moments(x, self.posterior, has_variance, self._conditioning)
        except ValueError:
            return self._moments(x, self.posterior, has_variance, self.regression.conditioning())

    @torch.no_grad()
    def prior_variance(self, x: Tensor) -> Tensor:
        """The variances (N, T) of the prior at points (N, d)."""
        points = checks.finite(checks.inputs(x)).to(self._input_dtype)
        return self.regression.prior_variances(points).to(self.dtype)
