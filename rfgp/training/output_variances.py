"""Scales and noise variances of independent outputs with one kernel."""

from __future__ import annotations

import math

import gpytorch
import torch
from gpytorch.constraints import GreaterThan
from torch import Tensor

from .._support.constrained import constrained, set_within
from ..linalg.cholesky_factor import NoFactorError

_LEAST = 1e-8
_RATIOS = tuple(10.0 ** (0.5 * power) for power in range(-13, 4))


class OutputVariances(gpytorch.Module):
    """Scale and noise variance of each output, (T,)."""

    scale, noise = constrained("scale"), constrained("noise")

    def __init__(self, scale: Tensor, noise: Tensor) -> None:
        super().__init__()
        least = _LEAST * float((scale + noise).max())
        for name, value in (("scale", scale), ("noise", noise)):
            self.register_parameter(f"raw_{name}", torch.nn.Parameter(torch.zeros_like(value)))
            self.register_constraint(f"raw_{name}", GreaterThan(least))
            set_within(self, name, value)

    def set(self, scale: Tensor, noise: Tensor) -> None:
        """Set both, within their bounds."""
        set_within(self, "scale", scale)
        set_within(self, "noise", noise)

    def covariance(self, matrix: Tensor) -> Tensor:
        """The covariances (B, T, n, n) of noisy outputs with this kernel matrix (B, n, n)."""
        noise = torch.diag_embed(self.noise.unsqueeze(-1).expand(-1, matrix.shape[-1]))
        return matrix.unsqueeze(-3) * self.scale[:, None, None] + noise


@torch.no_grad()
def profiled_variances(matrix: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    r"""Scale and noise (T,) with which the last of n rows are predicted best from the others.

    For a ratio of noise and scale the scale is the mean of :math:`\epsilon^2 / v`, where v is the variance of the error
    :math:`\epsilon` for scale one; the best of some ratios is taken, all of them with one eigendecomposition.

    :param matrix: the kernel at groups of rows, (B, n, n).
    :param residual: (B, n, T).
    :raises NoFactorError: where the kernel is not finite.
    """
    if not matrix.isfinite().all():
        raise NoFactorError
    values, vectors = torch.linalg.eigh(matrix[:, :-1, :-1])
    values, cross = values.clamp_min(0.0).unsqueeze(-1), vectors.mT @ matrix[:, :-1, -1:]
    near, last = vectors.mT @ residual[:, :-1], residual[:, -1]
    best = torch.full_like(last[0], -math.inf)
    scale, noise = torch.ones_like(best), torch.ones_like(best)
    for ratio in _RATIOS:
        weights = cross / (values + ratio)
        variance = matrix[:, -1, -1:] + ratio - (weights * cross).sum(-2)
        error = last - (weights.mT @ near).squeeze(-2)
        size = (error.square() / variance).mean(0).clamp_min(torch.finfo(error.dtype).tiny)
        density = -0.5 * (size.log() + variance.log().mean())
        is_better = density > best
        best = torch.where(is_better, density, best)
        scale, noise = torch.where(is_better, size, scale), torch.where(is_better, ratio * size, noise)
    return scale, noise


def masked_variances(matrix: Tensor, residual: Tensor, start: OutputVariances) -> tuple[Tensor, Tensor]:
    """The same of outputs of which cells are missing, each from its known cells.

    :param residual: (B, n, T), with NaN for missing cells.
    :param start: what an output has of which no last cell is known.
    """
    scale, noise = start.scale.detach().clone(), start.noise.detach().clone()
    for output, column in enumerate(residual.unbind(-1)):
        rows = ~column[:, -1].isnan()
        if rows.any():
            known = (~column[rows].isnan()).to(matrix)
            inside = known.unsqueeze(-1) * known.unsqueeze(-2)
            values = column[rows].nan_to_num().unsqueeze(-1)
            scale[output], noise[output] = profiled_variances(matrix[rows] * inside, values)
    return scale, noise
