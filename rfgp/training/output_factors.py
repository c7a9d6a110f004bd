"""Combinations of several outputs that are independent when two covariances are as they seem."""

from __future__ import annotations

import torch
from torch import Tensor

from .missing_cells import pairwise_covariance


def joint_factors(total: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
    r"""W and :math:`\lambda` (T,) with :math:`C = W W^\top` and :math:`E = W \mathrm{diag}(\lambda) W^\top`.

    :param total: C, (T, T), positive definite.
    :param part: E, (T, T).
    """
    root = torch.linalg.cholesky(total)
    white = torch.linalg.solve_triangular(root, torch.linalg.solve_triangular(root, part, upper=False).mT, upper=False)
    values, vectors = torch.linalg.eigh(0.5 * (white + white.mT))
    return root @ vectors, values


def autocorrelation_factors(residual: Tensor, groups: Tensor) -> Tensor:
    r"""The factors W (T, T) of outputs that are as smooth, and as rough, as possible.

    C is the covariance of the outputs, and E half that of the differences of near rows: what is noise in one output
    alone, such as spikes, becomes a factor of its own.

    :param residual: outputs without their means, (N, T), with NaN for missing cells.
    :param groups: rows and others near them, (n, 2).

    Source: P. Switzer and A. A. Green, Min/max autocorrelation factors for multivariate spatial imagery, 1984.
    """
    scale = residual.square().nanmean(0).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    unit = residual / scale
    differences = unit[groups[:, 0]] - unit[groups[:, 1]]
    factors, _ = joint_factors(pairwise_covariance(unit), 0.5 * pairwise_covariance(differences))
    return scale.unsqueeze(-1) * factors
