"""A check of the noise that little data have taught, against the prediction of rows from those near them."""

from __future__ import annotations

import math

import scipy
import torch
from torch import Tensor

from ..approximation.input_scales import input_scales
from ..linalg.nearest import scaled_points
from .exact_regression import ExactRegression
from .starts import random_rows
from .stationary import covariance

NUM_ROWS, NUM_NEIGHBORS = 500, 64
_SMALLEST_GAIN = 0.05
_FACTORS = tuple(2.0**power for power in range(11))


def has_one_noise(regression: ExactRegression) -> bool:
    """Whether a model has one target per row, and noise of one variance that it learns."""
    if not regression.is_plain or regression.noise is not None:
        return False
    noise = getattr(regression.model.likelihood, "noise_covar", None)
    return noise is not None and bool(noise.raw_noise.requires_grad)


@torch.no_grad()
def noise_factor(regression: ExactRegression, rows: Tensor) -> tuple[float, float]:
    r"""By what the noise is to be multiplied so that rows are predicted best, and their mean log density then.

    .. math:: \max_{c \in \{1, 2, 4, \dots\}} \sum_i \log p(y_i \mid y_{n(i)}, c \sigma^2)

    n(i) are the rows near row i; the factor is one where the gain is below 0.05 nats a row.
    """
    points = scaled_points(regression.x[rows], input_scales(regression.kernel, regression.x)).numpy()
    chosen = random_rows(len(rows), NUM_ROWS)
    _, neighbors = scipy.spatial.KDTree(points).query(points[chosen.numpy()], NUM_NEIGHBORS + 1)
    near = torch.from_numpy(neighbors)
    is_own = near == chosen.unsqueeze(-1)
    is_own[:, -1] |= ~is_own.any(-1)  # among more than 64 equal rows
    group = rows[torch.cat([near[~is_own].reshape(len(chosen), -1), chosen.unsqueeze(-1)], dim=-1)]
    x = regression.x[group]
    matrix = covariance(regression.kernel, x).double()
    residual = (regression.targets[group] - regression.model.mean_module(x).double()).unsqueeze(-1)
    noise = regression.noise_variances(group)
    densities = torch.stack([_last_log_density(matrix, factor * noise, residual) for factor in _FACTORS])
    best = int(densities.mean(-1).argmax())
    gain = float((densities[best] - densities[0]).mean())
    index = best if gain > _SMALLEST_GAIN else 0
    return _FACTORS[index], float(densities[index].mean())


def _last_log_density(matrix: Tensor, noise: Tensor, residual: Tensor) -> Tensor:
    """The log density of the last of n residuals (..., n, 1) given the others, (...)."""
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    factor, info = torch.linalg.cholesky_ex(matrix + noise.unsqueeze(-1) * identity)
    white = torch.linalg.solve_triangular(factor, residual, upper=False)[..., -1, 0]
    density = -0.5 * (white.square() + math.log(2.0 * math.pi)) - factor[..., -1, -1].log()
    return torch.where(info == 0, density, -math.inf)
