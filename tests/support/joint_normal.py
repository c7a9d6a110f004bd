"""The joint normal law of observed cells and of functions at new points: dense algebra that knows no structure."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal


@dataclass(frozen=True)
class JointNormal:
    """A prior over the cells of rows and then of points, and what is observed of the rows.

    :param prior: the covariance of all cells, (n + m, n + m), differentiable.
    :param mean: their means, (n + m,).
    :param noise: the noise covariance of the cells of rows, (n, n).
    :param y: the targets of the cells of rows, (n,), NaN where there is none.
    """

    prior: Tensor
    mean: Tensor
    noise: Tensor
    y: Tensor

    @property
    def _seen(self) -> Tensor:
        return (~torch.isnan(self.y)).nonzero().squeeze(-1)

    @property
    def _total(self) -> Tensor:
        rows = len(self.y)
        return (self.prior[:rows, :rows] + self.noise)[self._seen][:, self._seen]

    @property
    def _residual(self) -> Tensor:
        return (self.y - self.mean[: len(self.y)])[self._seen]

    def evidence(self) -> Tensor:
        """The log density of what is observed."""
        zero = torch.zeros_like(self._residual)
        return MultivariateNormal(zero, self._total).log_prob(self._residual)

    def posterior(self) -> tuple[Tensor, Tensor]:
        """Mean and covariance of the functions at the points."""
        rows = len(self.y)
        cross = self.prior[rows:, :rows][:, self._seen]
        mean = self.mean[rows:] + cross @ torch.linalg.solve(self._total, self._residual)
        return mean, self.prior[rows:, rows:] - cross @ torch.linalg.solve(self._total, cross.mT)
