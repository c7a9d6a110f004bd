"""Weights of rows of several outputs whose noise is Student's t: rows that near ones do not explain count little."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator import to_dense
from torch import Tensor

from ..linalg.cholesky_factor import factor_of
from ..training.near_groups import near_groups, searches

_DEGREES, _NEIGHBORS, _PASSES, _CHUNK = 4.0, 16, 3, 512


@torch.no_grad()
def student_weights(model: Any) -> Tensor:
    r"""Weights (N,) of the rows of a model of several outputs in blocks, by which their noise is divided.

    .. math:: w_i = \min\Big(1, \frac{\nu + T}{\nu + z_i^2}\Big), \qquad
        z_i^2 = \sum_s \frac{(z_{si} - \mu_{si})^2}{v_{si}}

    Moments of a row are those given the rows near it, with their weights of the pass before.

    Source: K. L. Lange, R. Little and J. Taylor, Robust statistical modeling using the t distribution, 1989.
    """
    systems, rows = model.systems(), model.conditioned.sums.local
    targets, scales = systems.targets(rows.columns), systems.scales
    groups = near_groups(searches(rows.points(rows.x)), torch.arange(len(rows.x)), _NEIGHBORS)
    weights = torch.ones(len(groups), dtype=torch.float64)
    for _ in range(_PASSES):
        surprise = torch.cat([_surprises(systems, rows.x, targets, scales, weights, g) for g in groups.split(_CHUNK)])
        weights = ((_DEGREES + len(scales)) / (_DEGREES + surprise)).clamp_max(1.0)
    return weights


def _surprises(systems: Any, x: Tensor, targets: Tensor, scales: Tensor, weights: Tensor, groups: Tensor) -> Tensor:
    """The squared errors of the last rows of groups (B, n) given the others, in units of their variances, summed."""
    precision = weights[groups]
    precision[:, -1] = 1.0
    noise = torch.diag_embed(1.0 / (scales[:, None, None] * precision))
    factor = factor_of(to_dense(systems.kernel.exact_kernel(x[groups])).double() + noise)
    white = torch.linalg.solve_triangular(factor, targets[:, groups].unsqueeze(-1), upper=False)
    return white[..., -1, 0].square().sum(0)
