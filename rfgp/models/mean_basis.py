"""Mean functions that are linear in their parameters, so that they enter through sums over the data."""

from __future__ import annotations

import torch
from gpytorch.means import ConstantMean, LinearMean, Mean, ZeroMean
from torch import Tensor


def check_mean(mean: Mean) -> Mean:
    """Return the mean function, or raise a ValueError where it is not linear in its parameters."""
    if not isinstance(mean, ZeroMean | ConstantMean | LinearMean):
        raise ValueError(
            f"expected a ZeroMean, ConstantMean or LinearMean, got {type(mean).__name__}; subtract others from y"
        )
    return mean


def basis(mean: Mean, x: Tensor) -> Tensor:
    """The columns (N, k) of which the mean function at x (N, d) is a linear combination."""
    if isinstance(mean, ZeroMean):
        return x.new_zeros(len(x), 0)
    ones = x.new_ones(len(x), 1)
    if isinstance(mean, ConstantMean):
        return ones
    if mean.weights.shape[-2] != x.shape[-1]:
        raise ValueError(
            f"expected x with {mean.weights.shape[-2]} columns as the LinearMean has, got {x.shape[-1]}; "
            "correct one of the two"
        )
    return x if mean.bias is None else torch.cat([x, ones], dim=-1)


def coefficients(mean: Mean, device: torch.device) -> Tensor:
    """The coefficients (k,) or (C, k) of the mean function in its basis, in float64."""
    if isinstance(mean, ZeroMean):
        return torch.zeros(0, dtype=torch.float64, device=device)
    if isinstance(mean, ConstantMean):
        return mean.constant.double().unsqueeze(-1)
    weights = mean.weights.double().squeeze(-1)
    return weights if mean.bias is None else torch.cat([weights, mean.bias.double()], dim=-1)


def batch_shape(mean: Mean) -> torch.Size:
    """The batch shape of the parameters of the mean function."""
    return coefficients(mean, torch.device("cpu")).shape[:-1]
