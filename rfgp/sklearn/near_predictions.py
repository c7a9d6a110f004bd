"""New rows predicted from the training rows near them, by the exact kernel alone: shared ones, or those of each."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, cast

import torch
from torch import Tensor

from .._support import checks
from ..approximation.input_scales import input_scales
from ..inference.local import SharedRows
from ..inference.sums.mean_basis import mean_values
from ..linalg.last_rows import StationaryRows, predictions
from ..linalg.nearest import NearestRows, scaled_points
from ..models import WeightSpaceGP
from ..training.classes import class_moments, transformed
from ..training.near_rows import near_groups
from ..training.starts import random_rows
from ..training.stationary import StationaryParts, covariance, stationary_parts

_SCALED_ROWS, _COMPARED_ROWS, _SHARE_OF_NOISE, _MANY_ROWS = 4096, 128, 0.1, 100_000
_NEIGHBORS, _POINTS, _LABELED_POINTS = 64, 2**14, 64
"""Rows that predict a point by themselves, and so many points at a time: fewer from labels."""


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

    :param shared: rows that points share, with a stationary kernel.
    """

    def __init__(self, shared: SharedRows) -> None:
        self.shared = shared

    @functools.cached_property
    def rows(self) -> StationaryRows:
        """The rows as those of a stationary kernel."""
        shared, parts = self.shared, cast(StationaryParts, stationary_parts(self.shared.kernel, self.shared.x))
        columns = shared.targets.unsqueeze(-1), shared.variances.unsqueeze(-1)
        return StationaryRows(parts.points, *columns, parts.scale.unsqueeze(-1), parts.alpha, parts.profile)

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
    return None if stationary_parts(shared.kernel, shared.x[:1]) is None else OwnRows(shared)


class OwnLabels:
    """The functions of Dirichlet classes at single points given the labels of the 64 rows nearest to each.

    All classes have one kernel, so that their functions take one Cholesky factor of a point.

    :param model: what has the kernel, the mean functions and the concentration of labels; it need not be conditioned.
    :param x: the inputs of the rows, (N, d).
    :param labels: the numbers of their classes, (N,).
    """

    @torch.no_grad()
    def __init__(self, model: WeightSpaceGP, x: Tensor, labels: Tensor) -> None:
        likelihood: Any = model.likelihood
        self.kernel, self.x, self.labels = model.covar_module.exact_kernel, x, labels
        self.num_classes, concentration = likelihood.num_classes, torch.tensor(likelihood.alpha_epsilon).double()
        self.targets = transformed(concentration)
        self.means = mean_values(model.mean_module, x[:1]).double().flatten().expand(self.num_classes)
        self.scales = input_scales(self.kernel, x[:_SCALED_ROWS])
        self.nearest = NearestRows(scaled_points(x, self.scales))

    @torch.no_grad()
    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The means and variances of the functions at points (n, d): (n, C) each.

        :raises ValueError: for inputs too large for distances between them.
        """
        scaled = scaled_points(x, self.scales)
        if not bool(scaled.square().sum(-1).isfinite().all()):
            raise checks.overflow(scaled)
        return self._moments_at(x, self.nearest.query(scaled, min(_NEIGHBORS, len(self.x))))

    @torch.no_grad()
    def left_out(self, folds: Tensor) -> tuple[Tensor, Tensor]:
        """The same at the rows themselves, each given those of other folds (N,): (N, C) each."""
        every, points = torch.arange(len(folds)), self.nearest.points
        if len(folds.unique()) == len(folds):
            return self._moments_at(self.x, near_groups([(every, self.nearest)], every, _NEIGHBORS)[:, :-1])
        means, variances = points.new_empty(2, len(folds), self.num_classes)
        for fold in folds.unique():
            inside, others = every[folds == fold], every[folds != fold]
            near = NearestRows(points[others]).query(points[inside], min(_NEIGHBORS, len(others)))
            means[inside], variances[inside] = self._moments_at(self.x[inside], others[near])
        return means, variances

    def _moments_at(self, x: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        """Those at points (n, d) given the rows with the numbers near (n, k)."""
        chunks = zip(x.split(_LABELED_POINTS), near.to(x.device).split(_LABELED_POINTS), strict=True)
        means, variances = zip(*(self._moments(*chunk) for chunk in chunks), strict=True)
        return torch.cat(means), torch.cat(variances)

    def _moments(self, x: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        inputs = torch.cat([self.x[near], x.unsqueeze(-2)], dim=-2)
        inside = torch.nn.functional.one_hot(self.labels[near], self.num_classes).double()
        mean, variance = class_moments(covariance(self.kernel, inputs), inside, self.targets, self.means)
        return mean, variance.clamp_min(0.0)


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
