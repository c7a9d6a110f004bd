"""What a fitted model says of its functions at single points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..inference.sums.additive_mean import AdditiveMean

_FEW_POINTS = 300
"""Up to so many points are predicted in float64, which then costs little."""
_SMALLEST_NOISE = 3e-4
"""Noise from which on, relative to the prior variance, float32 is enough for predictions from near rows."""

PointPredictor = Callable[[Tensor], tuple[Tensor, Tensor]]
"""What predicts functions less their means at points (n, d): means and variances, (n,) or (n, C) each."""


@torch.no_grad()
def latent_moments(
    model: Any, x: Tensor, has_variance: bool = True, rows: PointPredictor | None = None
) -> tuple[Tensor, Tensor]:
    """Means and variances (N, T) of the functions of outputs or classes at standardized inputs (N, d), in float64.

    Without ``has_variance`` the second is no variance.

    :param rows: predict by the exact kernel alone, in place of the features of the model.
    """
    if rows is not None:
        return with_means(model, x, *rows(x))
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
def with_means(model: Any, x: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """What near rows say of functions less their means, (N,) or (N, T), and the mean functions: (N, T) each."""
    prior = model.mean_module(x).double().reshape(-1, len(x)).mT
    return mean.reshape(len(x), -1) + prior, variance.reshape(len(x), -1)


def _dtype(model: Any) -> torch.dtype:
    """Of predictions from near rows: float32 where the noise is not tiny."""
    local = model.conditioned.sums.local
    smallest = model.systems(local.has_cells).relative_noise(local.columns, local.variances, local.x[:1])
    return torch.float32 if smallest > _SMALLEST_NOISE else torch.float64


def noise_variances(model: Any) -> Tensor:
    """The noise variances of the outputs, (T,)."""
    variances: Tensor = model.measured_noise.covariance().diagonal()
    return variances


@torch.no_grad()
def observed_variances(model: Any, x: Tensor, latent: Tensor, of_noise: Tensor) -> Tensor:
    r"""The variances of new observations at standardized inputs (N, d), (N, T).

    .. math:: v(x) + \rho(x)\, \sigma^2 + \frac{v(x)}{k(x, x)}\, \mathrm{var}\, g(x)

    The last part is of a mean function g that data have taught, and independent between rows. Near rows correct its
    errors as they tell the function: as if both had the same correlations.

    :param latent: the variances v of the functions, (N, T).
    :param of_noise: by what the noise of the rows is multiplied, (N, 1).
    """
    mean, variances = model.mean_module, latent + noise_variances(model) * of_noise
    if not isinstance(mean, AdditiveMean):
        return variances
    share = latent.squeeze(-1) / model.covar_module.exact_kernel(x, diag=True)
    return variances + (share.clamp_max(1.0) * mean.variance(x)).unsqueeze(-1)
