"""Log densities of rows given others, and their mean."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..linalg.prediction_errors import normal_log_density, prediction_errors
from .stationary import GaussianLogDensity

_FARTHEST, _FEW_ROWS, _SHARE_OF_ROWS = 10.0, 2, 0.005


def conditional_log_density(matrix: Tensor, variances: Tensor, residual: Tensor, targets: int) -> Tensor:
    r"""The log density (...) of the last t of n residuals (..., n) given those before, under N(0, K + diag(s)).

    :param matrix: K, (..., n, n).
    :param variances: s, of a shape that expands to that of the residuals.
    :param targets: t; n for the joint density of all.
    """
    if targets == residual.shape[-1]:
        density: Tensor = GaussianLogDensity.apply(matrix, variances, residual)
        return density
    noisy = matrix + torch.diag_embed(variances.expand(residual.shape))
    return normal_log_density(*prediction_errors(noisy, residual, targets)).sum(-1)


def robust_mean(densities: Tensor) -> Tensor:
    """The mean of log densities (n,), where few rows that are far below the others do not decide alone.

    The lowest half percent, at least two rows, count for no less than the median less 10 nats, or than the next row
    where that is lower: the tails of a wrong model are more rows than these.
    """
    values = densities.detach()
    few = max(_FEW_ROWS, math.ceil(_SHARE_OF_ROWS * len(values)))
    next_row = values.kthvalue(min(few + 1, len(values))).values
    return densities.clamp_min(torch.minimum(next_row, values.median() - _FARTHEST)).mean()
