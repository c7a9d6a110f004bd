"""New rows predicted from the training rows near them, by the exact kernel alone: shared ones, or those of each."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ..approximation.input_scales import input_scales
from ..inference.local import SharedRows
from ..inference.sums.mean_basis import mean_values
from ..linalg.class_rows import ClassRows
from ..linalg.class_rows import predictions as label_predictions
from ..linalg.last_rows import StationaryRows, predictions
from ..linalg.nearest import NearestRows, scaled_points
from ..models import WeightSpaceGP
from ..training.classes import class_moments, class_rows, transformed
from ..training.near_rows import near_groups
from ..training.starts import random_rows
from ..training.stationary import StationaryParts, covariance, stationary_parts

_SCALED_ROWS, _COMPARED_ROWS, _SHARE_OF_NOISE, _MANY_ROWS = 4096, 128, 0.1, 100_000
_NEIGHBORS, _POINTS, _LABELED_POINTS = 64, 2**14, 64
"""Rows that predict a point by themselves, and so many points at a time: fewer from labels by PyTorch."""


class FittedRows(NamedTuple):
    """Rows as a model takes them: standardized inputs (N, d), targets or labels (N,), and weights (N,), None for ones.

    Weights divide the noise of the rows.
    """

    x: Tensor
    y: Tensor
    weights: Tensor | None = None

    def joined(self, others: FittedRows) -> FittedRows:
        """These rows and others."""
        weights = None
        if self.weights is not None or others.weights is not None:
            weights = torch.cat([self._precisions, others._precisions])
        return FittedRows(torch.cat([self.x, others.x]), torch.cat([self.y, others.y]), weights)

    @property
    def _precisions(self) -> Tensor:
        return self.x.new_ones(len(self.x)) if self.weights is None else self.weights.to(self.x)

    def check(self, others: FittedRows) -> None:
        """Raise a ValueError for others than these."""
        pairs = (self.x, others.x), (self.y, others.y), (self._precisions, others._precisions)
        if not all(torch.equal(own, other) for own, other in pairs):
            raise ValueError("expected the rows that were fitted, got others; pass those, in the same order")


@torch.no_grad()
def rows_of(model: WeightSpaceGP, rows: FittedRows) -> SharedRows:
    """Rows by which a model of one target predicts without features; it need not be conditioned."""
    x, y, weights = rows
    noise = model.likelihood.noise.double().reshape(1)
    variances = noise.expand(len(x)) if weights is None else noise / weights
    kernel, mean = model.covar_module.exact_kernel, mean_values(model.mean_module, x).reshape(len(x))
    return SharedRows(kernel, x, (y - mean).double(), variances, input_scales(kernel, x[:_SCALED_ROWS]))


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
        shared, parts = self.shared, []
        for points in x.split(_POINTS):
            near = shared.nearest.query(scaled_points(points, shared.scales), min(_NEIGHBORS, len(shared.x)))
            parts.append(self._moments(points, near) or shared(points))
        means, variances = zip(*parts, strict=True)
        return torch.cat(means), torch.cat(variances)

    @torch.no_grad()
    def left_out(self, folds: Tensor) -> tuple[Tensor, Tensor]:
        """The same at the rows themselves, each given those of other folds (N,)."""
        shared = self.shared
        means, variances = shared.targets.new_empty(2, len(folds))
        for inside, near in _near_others(shared.nearest, folds):
            found = self._moments(shared.x[inside], near)
            if found is None:
                return shared.left_out(folds)
            means[inside], variances[inside] = found
        return means, variances

    def _moments(self, x: Tensor, near: Tensor) -> tuple[Tensor, Tensor] | None:
        """Those at points (n, d) given the rows with the numbers near (n, k); None without a Cholesky factor."""
        points = cast(StationaryParts, stationary_parts(self.shared.kernel, x)).points
        with contextlib.suppress(ValueError):
            mean, variance = predictions(self.rows, points, near)
            return mean.squeeze(-1), variance.squeeze(-1).clamp_min(0.0)
        return None


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
        """The means, without the mean functions, and the variances of the functions at points (n, d): (n, C) each.

        :raises ValueError: for inputs too large for distances between them.
        """
        near = self.nearest.query(scaled_points(x, self.scales), min(_NEIGHBORS, len(self.x)))
        return self._moments_at(x, near)

    @torch.no_grad()
    def left_out(self, folds: Tensor) -> tuple[Tensor, Tensor]:
        """The same at the rows themselves, each given those of other folds (N,): (N, C) each."""
        means, variances = self.means.new_empty(2, len(folds), self.num_classes)
        for inside, near in _near_others(self.nearest, folds):
            means[inside], variances[inside] = self._moments_at(self.x[inside], near)
        return means, variances

    @functools.cached_property
    def rows(self) -> ClassRows | None:
        """The rows for the compiled library; None where PyTorch predicts."""
        return class_rows(self.kernel, self.x, self.labels, self.targets, self.means)

    def _moments_at(self, x: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        """Those at points (n, d) given the rows with the numbers near (n, k)."""
        size = _LABELED_POINTS if self.rows is None else _POINTS
        chunks = zip(x.split(size), near.split(size), strict=True)
        means, variances = zip(*(self._moments(*chunk) for chunk in chunks), strict=True)
        return torch.cat(means) - self.means, torch.cat(variances).clamp_min(0.0)

    def _moments(self, x: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        if self.rows is not None:
            points = cast(StationaryParts, stationary_parts(self.kernel, x)).points
            return label_predictions(self.rows, points, near)
        inputs = torch.cat([self.x[near], x.unsqueeze(-2)], dim=-2)
        inside = torch.nn.functional.one_hot(self.labels[near], self.num_classes).double()
        return class_moments(covariance(self.kernel, inputs), inside, self.targets, self.means)


NearPredictor = SharedRows | OwnRows | OwnLabels
"""What predicts new rows from training rows near them, in place of the features of a model."""


def of_more_rows(near: NearPredictor, model: WeightSpaceGP, rows: FittedRows) -> NearPredictor:
    """The same with other rows."""
    if isinstance(near, OwnLabels):
        return OwnLabels(model, rows.x, rows.y)
    shared = rows_of(model, rows)
    return OwnRows(shared) if isinstance(near, OwnRows) else shared


def _near_others(nearest: NearestRows, folds: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The numbers of some rows (n,), and of those of other folds (N,) that are nearest to each, (n, k)."""
    every, points = torch.arange(len(folds)), nearest.points
    if len(folds.unique()) == len(folds):
        yield every, near_groups([(every, nearest)], every, _NEIGHBORS)[:, :-1]
        return
    for fold in folds.unique():
        inside, others = every[folds == fold], every[folds != fold]
        yield inside, others[NearestRows(points[others]).query(points[inside], min(_NEIGHBORS, len(others)))]


@torch.no_grad()
def needs_no_features(model: WeightSpaceGP, rows: FittedRows) -> bool:
    """Whether rows near some of the rows leave less variance there than the features of a model lack.

    Where they leave more, or much less than the noise has, such as for a smooth function with much noise, features
    gather what all rows tell, and blocks of rows tell its parameters better. Of more than 100,000 rows that takes
    minutes, and gains some thousandths of a nat where near rows leave so little.
    """
    x, y, weights = rows
    some = random_rows(len(x), _COMPARED_ROWS).to(x.device)
    others = torch.ones(len(x), dtype=torch.bool, device=x.device)
    others[some] = False
    near = rows_of(model, FittedRows(x[others], y[others], None if weights is None else weights[others]))
    variance = near(x[some])[1].mean()
    is_little = bool(variance <= _SHARE_OF_NOISE * near.variances.mean())
    if is_little:
        return len(x) > _MANY_ROWS
    return bool(variance < model.covar_module.residual_variance(x[some]).mean())
