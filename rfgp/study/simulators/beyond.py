"""Functions beyond the runs: there they go on as at the edge of these, by a factor that nobody knows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from ...averaging import AveragedGP

_INWARD = 0.1
"""How far inside the edge the slope is taken from, as a share of the range of the runs."""
_PAIRS = 100
"""Covariances of so many pairs of points are computed at once."""


class Beyond:
    r"""Points x (M, d), in units of the range of the runs, by the nearest points p in the box of the runs.

    .. math:: f(x) = f(p) + g_u\, \frac{|x - p|}{h} \big(f(p) - f(p - h u)\big), \qquad
        u = \frac{x - p}{|x - p|}, \qquad g_u = \sum_k u_k^2\, g_{k, \mathrm{sign}\, u_k}

    A stationary process forgets the runs beyond them, and returns to its mean: it takes a function for flat that grows
    on. So a function goes on with its slope at the edge of the box, times a factor g for each side of each input. These
    factors are independent and exponential with mean one, which knows of them no more than that the function goes on
    into the same direction: it may flatten, or grow several times as fast.
    """

    def __init__(self, x: Tensor) -> None:
        self.edge = x.clamp(0.0, 1.0)
        distance = (x - self.edge).norm(dim=-1)
        self.rows = distance.nonzero().flatten()
        direction = (x - self.edge)[self.rows] / distance[self.rows].unsqueeze(-1)
        self.inner = self.edge[self.rows] - _INWARD * direction
        self.steps = distance[self.rows] / _INWARD
        sides = torch.cat([direction.clamp_max(0.0), direction.clamp_min(0.0)], dim=-1)
        self.shares = x.new_zeros(len(x), sides.shape[-1]).index_copy(0, self.rows, sides.square())

    @property
    def known(self) -> Tensor:
        """Those points in the box by which all others are known, (M + R, d)."""
        return torch.cat([self.edge, self.inner])

    def _growth(self, values: Tensor) -> Tensor:
        """By what functions grow from p to x for factors of one, (M, F), from their values where they are known."""
        edge, inner = values.split([len(self.edge), len(self.inner)])
        growth = self.steps.unsqueeze(-1) * (edge[self.rows] - inner)
        return torch.zeros_like(edge).index_copy(0, self.rows, growth)

    def values(self, functions: Callable[[Tensor], Tensor], factors: Tensor) -> Tensor:
        """The values (M, F) of functions that are known in the box, with factors (2 d, F)."""
        values = functions(self.known)
        return values[: len(self.edge)] + (self.shares @ factors) * self._growth(values)

    def moments(self, process: AveragedGP, scale: float) -> tuple[Tensor, Tensor]:
        """The mean and the variance (M,) of the function of a process whose deviations from its mean are scaled."""
        count, found = len(self.edge), process.function(self.known)
        mean, variance = found.mean, scale**2 * found.variance
        between = scale**2 * _between(process, self.edge[self.rows], self.inner)
        growth, edge = self._growth(mean.unsqueeze(-1)).squeeze(-1), variance[: len(self.edge)]
        of_growth, with_edge = torch.zeros_like(edge), torch.zeros_like(edge)
        of_growth[self.rows] = self.steps.square() * (edge[self.rows] + variance[count:] - 2.0 * between).clamp_min(0.0)
        with_edge[self.rows] = self.steps * (edge[self.rows] - between)
        whole = (edge + 2.0 * with_edge + of_growth).clamp_min(0.0)
        return mean[:count] + growth, whole + self.shares.square().sum(-1) * (growth.square() + of_growth)

    def covariance(self, process: AveragedGP, scale: float) -> Tensor:
        """The covariance (M, M) of that function."""
        known, count = self.known, len(self.edge)
        covariance = scale**2 * process.covariance(known, has_noise=False)
        growth = self._growth(process.function(known).mean.unsqueeze(-1))
        with_known = self._growth(covariance)
        with_edge, of_growth = with_known[:, :count], self._growth(with_known.mT)
        whole = covariance[:count, :count] + with_edge + with_edge.mT + of_growth
        return whole + (self.shares @ self.shares.mT) * (growth @ growth.mT + of_growth)


def _between(process: AveragedGP, x: Tensor, z: Tensor) -> Tensor:
    """The covariances (M,) of the function of a process at x (M, d) and at z (M, d)."""
    found = x.new_empty(len(x))
    for start in range(0, len(x), _PAIRS):
        rows = slice(start, start + _PAIRS)
        covariance = process.covariance(torch.cat([x[rows], z[rows]]), has_noise=False)
        found[rows] = covariance.diagonal(len(x[rows]))
    return found


def factors(dim: int, count: int, generator: Generator) -> Tensor:
    """One for the mean, then draws for functions, for both sides of d inputs, (2 d, 1 + count)."""
    levels = torch.rand(2 * dim, count, generator=generator, dtype=torch.float64)
    return torch.cat([torch.ones(2 * dim, 1, dtype=torch.float64), -torch.log1p(-levels)], dim=-1)
