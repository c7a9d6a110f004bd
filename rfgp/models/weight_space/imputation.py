"""Missing targets of very many outputs, filled with their posterior means."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .row_summation import last, running_sums
from .row_sums import FeatureSums

_MOST_WEIGHTS = 8192
"""Up to so many weights of all outputs together missing targets are left out of dense normal equations."""
_TOLERANCE, _MOST_STEPS = 1e-9, 100


def needs_imputation(model: Any, x: Any, y: Any) -> bool:
    """Whether missing targets would take a matrix of too many weights."""
    is_tensor = isinstance(x, Tensor) and isinstance(y, Tensor) and y.dim() == 2 and y.is_floating_point()
    if not is_tensor or not model.covar_module.has_output_factor or not bool(torch.isnan(y).any()):
        return False
    with torch.no_grad():
        model.covar_module.scalar_features(x[:1])
    factor = model.features.output_factor()
    return factor.covariance_root is not None and factor.num_columns > _MOST_WEIGHTS


@torch.no_grad()
def imputed(model: Any, x: Tensor, y: Tensor, noise: Tensor | None, before: FeatureSums | None = None) -> Tensor:
    r"""Targets (N, T) with posterior means of the functions in place of NaN.

    .. math:: y_{\mathrm{mis}} \leftarrow E[f_{\mathrm{mis}} \mid y_{\mathrm{obs}}, y_{\mathrm{mis}}]

    Where this has converged, the posterior mean given all targets is that given the observed ones; the error shrinks by
    about the share of missing targets in every step.

    :param before: sums over earlier rows, which are given too.

    Source: A. P. Dempster, N. M. Laird and D. B. Rubin, Maximum likelihood from incomplete data, 1977.
    """
    missing = torch.isnan(y)
    if before is None and bool(missing.all(0).any()):
        raise ValueError("expected at least one observed target of every output, got NaN only; leave it out")
    filled, scale = torch.where(missing, y.nanmean(0).nan_to_num(0.0), y), y[~missing].std()
    for _ in range(_MOST_STEPS):
        sums = last(running_sums(model, [(x, filled, noise)], is_all=True))
        sums = sums if before is None else before.merge(sums, model)
        regression = model.regression()
        values = regression.function(regression.posterior(sums.draws[0]).mean, x)
        change = float((values - filled)[missing].abs().max() / scale)
        filled = torch.where(missing, values, filled)
        if change < _TOLERANCE:
            break
    return filled
