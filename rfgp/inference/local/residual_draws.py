"""Draws of what the rows near points do not tell of the residual."""

from __future__ import annotations

import torch
from torch import Tensor

from ...linalg.cholesky_factor import factor_of
from .prediction import LocalConditioning

_ROUNDING = 0.6
"""The values of a draw are remembered up to this power of the rounding of the dtype of the inputs."""


class ResidualDraws:
    """S draws of the residual given the rows near every point, which remember where they were evaluated.

    They have the covariance of :meth:`LocalConditioning.covariance`: they are drawn jointly inside every block.
    """

    def __init__(self, conditioning: LocalConditioning, num_samples: int) -> None:
        self.conditioning = conditioning
        device = conditioning.rows.x.device
        self.x = conditioning.rows.x.new_empty(0, conditioning.rows.x.shape[-1])
        self.values = torch.empty(0, num_samples, dtype=torch.float64, device=device)

    @torch.no_grad()
    def at(self, x: Tensor) -> Tensor:
        """The values (N, S) at new points (N, d), in float64."""
        first = len(self.x)
        every = torch.cat([self.x, x.to(self.x)])
        values = torch.cat([self.values, self.values.new_empty(len(x), self.values.shape[-1])])
        places = self.conditioning.place(every)
        for block in places[first:].unique().tolist():
            points = (places == block).nonzero().squeeze(-1)
            count = int((points < first).sum())
            points = points.to(x.device)
            values[points[count:]] = self._drawn(every[points], values[points[:count]])
        self.x, self.values = every, values
        return values[first:]

    def _drawn(self, x: Tensor, known: Tensor) -> Tensor:
        """Values (t, S) at the last of some points (n + t, d), given those at the first, (n, S)."""
        covariance, count = self.conditioning.covariance(x).double(), len(known)
        if not count:
            return draws_of(covariance, known.shape[-1])
        rounding = torch.finfo(x.dtype).eps ** _ROUNDING * self.conditioning.residual.exact(x, diag=True).double()
        factor = factor_of(covariance[:count, :count] + torch.diag(rounding[:count]))
        weights = torch.cholesky_solve(covariance[:count, count:], factor).mT
        left = covariance[count:, count:] - weights @ covariance[:count, count:]
        return weights @ known + draws_of(left, known.shape[-1])


def draws_of(covariance: Tensor, num_samples: int) -> Tensor:
    """Draws (..., t, S) of normal distributions whose covariances (..., t, t) may be singular, but for rounding."""
    values, vectors = torch.linalg.eigh(covariance)
    noise = torch.randn(*values.shape, num_samples, dtype=values.dtype, device=values.device)
    return vectors @ (values.clamp_min(0.0).sqrt().unsqueeze(-1) * noise)
