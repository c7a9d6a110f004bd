"""What a fitted model says of its functions at single points."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..approximation.input_scales import input_scales
from ..inference.local import SharedRows
from ..inference.sums.mean_basis import mean_values
from ..models import WeightSpaceGP
from ..training.starts import random_rows

_FEW_POINTS = 300
"""Up to so many points are predicted in float64, which then costs little."""
_SMALLEST_NOISE = 3e-4
"""Noise from which on, relative to the prior variance, float32 is enough for predictions from near rows."""


_SCALED_ROWS, _COMPARED_ROWS, _SHARE_OF_NOISE = 4096, 128, 0.1


@torch.no_grad()
def latent_moments(
    model: Any, x: Tensor, has_variance: bool = True, rows: SharedRows | None = None
) -> tuple[Tensor, Tensor]:
    """Means and variances (N, T) of the functions of outputs or classes at standardized inputs (N, d), in float64.

    Without ``has_variance`` the second is no variance.

    :param rows: predict by the exact kernel alone, in place of the features of the model.
    """
    if rows is not None:
        mean, variance = rows(x)
        return mean.unsqueeze(-1) + mean_values(model.mean_module, x).double(), variance.unsqueeze(-1)
    if getattr(model, "block_size", None) is not None and hasattr(model, "point_predictor"):
        dtype = _dtype(model) if len(x) > _FEW_POINTS else torch.float64
        mean, variance = model.point_predictor(dtype)(x, has_variance)
        return mean.double(), mean if variance is None else variance.double()
    latent = model.posterior(x)
    values = [latent.mean, *([latent.variance] if has_variance else [])]
    is_batch = getattr(model, "noise_if_known", None) is not None and model.noise.is_batched
    columns = [value.mT if is_batch else value.reshape(len(x), -1) for value in values]
    return columns[0], columns[-1]


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


@torch.no_grad()
def needs_no_features(model: WeightSpaceGP, x: Tensor, y: Tensor, weights: Tensor | None) -> bool:
    """Whether rows near some of the rows (N, d) leave less variance there than the features of a model lack.

    Where they leave more, or much less than the noise has, such as for a smooth function with much noise, features
    gather what all rows tell, and blocks of rows tell its parameters better.
    """
    some = random_rows(len(x), _COMPARED_ROWS).to(x.device)
    others = torch.ones(len(x), dtype=torch.bool, device=x.device)
    others[some] = False
    near = rows_of(model, x[others], y[others], None if weights is None else weights[others])
    variance = near(x[some])[1].mean()
    is_less = variance < model.covar_module.residual_variance(x[some]).mean()
    return bool(is_less and variance > _SHARE_OF_NOISE * near.variances.mean())


def _dtype(model: Any) -> torch.dtype:
    """Of predictions from near rows: float32 where the noise is not tiny."""
    local = model.conditioned.sums.local
    smallest = model.systems(local.has_cells).relative_noise(local.columns, local.variances, local.x[:1])
    return torch.float32 if smallest > _SMALLEST_NOISE else torch.float64


def noise_variances(model: Any) -> Tensor:
    """The noise variances of the outputs, (T,)."""
    variances: Tensor = model.measured_noise.covariance().diagonal()
    return variances
