"""Covariances of outputs and their noise variances, learned from rows of which some cells are missing."""

from __future__ import annotations

import math

import numpy as np
import scipy
import torch
from torch import Tensor

from ..linalg import cholesky
from .prediction_errors import normal_log_density, prediction_errors, robust_mean

MOST_CELLS = 48
"""Cells of a row and its neighbors together: more cost seconds."""
_STEPS = 16
_LARGEST_ROOT, _LEAST_NOISE, _MOST_NOISE = 1e3, 1e-7, 1e2
"""Bounds of entries of the root and of noise variances, for outputs of unit variance."""


def learned_covariances(matrix: Tensor, residual: Tensor, function: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    r"""The covariance of outputs (T, T) and the noise variances (T,) that predict cells best, learned from one half.

    The other half decides whether they are better than those at the start.

    .. math:: \sum_b \log p(r_{bn} \mid r_{b1}, \dots, r_{b,n-1}), \qquad
        \mathrm{cov}(r_{bit}, r_{bju}) = K_{bij} \Gamma_{tu} + \delta_{ij} \delta_{tu} \sigma_t^2

    :param matrix: the kernel at groups of rows, (B, n, n).
    :param residual: the cells of outputs of unit variance, NaN where they are missing, (B, n, T).
    :param function: the covariance to start with, (T, T).
    :param noise: the variances to start with, (T,).
    """
    matrices, residuals = matrix.chunk(2), residual.chunk(2)
    count = len(noise)
    lower = torch.tril_indices(count, count)
    root = cholesky(function + noise.max() * torch.eye(count).to(function))
    start = torch.cat([root[lower[0], lower[1]], 0.5 * noise.log()])

    def unpack(parameters: Tensor) -> tuple[Tensor, Tensor]:
        root = parameters.new_zeros(count, count).index_put(tuple(lower), parameters[:-count])
        return root @ root.mT, (2.0 * parameters[-count:]).exp()

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        parameters = torch.from_numpy(values).to(start).requires_grad_()
        with torch.enable_grad():
            loss = -robust_mean(_log_densities(matrices[0], residuals[0], *unpack(parameters)))
        (gradient,) = torch.autograd.grad(loss, parameters)
        return float(loss.detach()), gradient.cpu().numpy()

    box = [(-_LARGEST_ROOT, _LARGEST_ROOT)] * lower.shape[-1]
    box += [(0.5 * math.log(_LEAST_NOISE), 0.5 * math.log(_MOST_NOISE))] * count
    result = scipy.optimize.minimize(
        objective, start.cpu().numpy(), jac=True, method="L-BFGS-B", bounds=box, options={"maxiter": _STEPS}
    )
    candidates = (function, noise), unpack(torch.from_numpy(result.x).to(start))
    return max(candidates, key=lambda found: float(robust_mean(_log_densities(matrices[1], residuals[1], *found))))


def _log_densities(matrix: Tensor, residual: Tensor, function: Tensor, noise: Tensor) -> Tensor:
    """The log densities (B,) of the cells of the last of n rows, given the cells of the others."""
    groups, rows, count = residual.shape
    values = residual.flatten(1)
    is_known = ~values.isnan()
    cells = torch.einsum("bij,tu->bitju", matrix, function).reshape(groups, rows * count, rows * count)
    cells = cells + torch.diag(noise.repeat(rows))
    inside = is_known.unsqueeze(-1) & is_known.unsqueeze(-2)
    identity = torch.eye(cells.shape[-1], dtype=cells.dtype, device=cells.device)
    errors = prediction_errors(torch.where(inside, cells, identity), values.nan_to_num(), count)
    return (normal_log_density(*errors) * is_known[:, -count:]).sum(-1)
