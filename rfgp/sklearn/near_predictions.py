"""New rows predicted from the training rows near them, by the exact kernel alone: shared ones, or those of each."""

from __future__ import annotations

import contextlib
from typing import Any, cast

import torch
from torch import Tensor

from .._support import checks
from ..approximation.input_scales import input_scales
from ..inference.local import SharedRows
from ..inference.sums.mean_basis import mean_values
from ..linalg.last_rows import StationaryRows, predictions
from ..linalg.nearest import scaled_points
from ..models import WeightSpaceGP
from ..training.starts import random_rows
from ..training.stationary import StationaryParts, stationary_parts

_SCALED_ROWS, _COMPARED_ROWS, _SHARE_OF_NOISE, _MANY_ROWS = 4096, 128, 0.1, 100_000
_NEIGHBORS, _POINTS = 64, 2**14
"""Rows that predict a point by themselves, and so many points at a time."""


@torch.no_grad()
def rows_of(model: WeightSpaceGP, x: Tensor, y: Tensor, weights: Tensor | None) -> SharedRows:
    """Rows (N, d) with targets (N,) by which a model predicts without features; it need not be conditioned.

    :param weights: what divides the noise of the rows, (N,); None for ones.
    """
    noise = model.likelihood.noise.double().reshape(1)
    variances = noise.expand(len(x)) if weights is None else noise / weights
    kernel, mean = model.covar_module.exact_kernel, mean_values(model.mean_module, x).reshape(len(x))
    return SharedRows(kernel, x, (y - mean).double(), variances, input_scales(kernel, x[:_SCALED_ROWS]))


@torch.no_grad()
def conditioned_rows(model: WeightSpaceGP) -> SharedRows:
    """The same of the rows that a model with blocks is conditioned on."""
    regression: Any = model.regression()
    rows = regression.local
    targets = regression.systems.targets(rows.columns)[0]
    return SharedRows(regression.kernel.exact_kernel, rows.x, targets, rows.variances, rows.scales, rows.nearest)


class OwnRows:
    """The function at single points given the 64 rows nearest to each, by the compiled library.

    That takes a tenth of the time of rows that points share, and is as good where noise hides what more rows tell. Rows
    without a Cholesky factor are shared.

    :param shared: rows that points share.
    :param rows: the same as those of a stationary kernel.
    """

    def __init__(self, shared: SharedRows, rows: StationaryRows) -> None:
        self.shared, self.rows = shared, rows

    @torch.no_grad()
    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The means, without the mean function, and the variances of the function at points (n, d): (n,) each.

        :raises ValueError: for inputs too large for distances between them.
        """
        means, variances = zip(*(self._moments(points) for points in x.split(_POINTS)), strict=True)
        return torch.cat(means), torch.cat(variances)

    def _moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shared, scaled = self.shared, scaled_points(x, self.shared.scales)
        if not bool(scaled.square().sum(-1).isfinite().all()):
            raise checks.overflow(scaled)
        near = shared.nearest.query(scaled, min(_NEIGHBORS, len(shared.x))).to(x.device)
        points = cast(StationaryParts, stationary_parts(shared.kernel, x)).points
        with contextlib.suppress(ValueError):
            mean, variance = predictions(self.rows, points, near)
            return mean.squeeze(-1), variance.squeeze(-1).clamp_min(0.0)
        return shared(x)


@torch.no_grad()
def own_rows(shared: SharedRows) -> OwnRows | None:
    """The rows near each point by itself; None for a kernel that is not stationary."""
    parts = stationary_parts(shared.kernel, shared.x)
    if parts is None:
        return None
    columns = shared.targets.unsqueeze(-1), shared.variances.unsqueeze(-1)
    return OwnRows(
        shared, StationaryRows(parts.points, *columns, parts.scale.unsqueeze(-1), parts.alpha, parts.profile)
    )


@torch.no_grad()
def needs_no_features(model: WeightSpaceGP, x: Tensor, y: Tensor, weights: Tensor | None) -> bool:
    """Whether rows near some of the rows (N, d) leave less variance there than the features of a model lack.

    Where they leave more, or much less than the noise has, such as for a smooth function with much noise, features
    gather what all rows tell, and blocks of rows tell its parameters better. Of more than 100,000 rows that takes
    minutes, and gains some thousandths of a nat where near rows leave so little.
    """
    some = random_rows(len(x), _COMPARED_ROWS).to(x.device)
    others = torch.ones(len(x), dtype=torch.bool, device=x.device)
    others[some] = False
    near = rows_of(model, x[others], y[others], None if weights is None else weights[others])
    variance = near(x[some])[1].mean()
    is_little = bool(variance <= _SHARE_OF_NOISE * near.variances.mean())
    if is_little:
        return len(x) > _MANY_ROWS
    return bool(variance < model.covar_module.residual_variance(x[some]).mean())
