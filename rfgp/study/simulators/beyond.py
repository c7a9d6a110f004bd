"""Functions beyond the runs: there they go on as at the edge of these, by a factor that nobody knows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from .process import Process

_INWARD = 0.1
"""How far inside the edge the slope is taken from, as a share of the range of the runs."""


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
        self.shares = torch.cat([direction.clamp_max(0.0), direction.clamp_min(0.0)], dim=-1).square()

    def values(self, functions: Callable[[Tensor], Tensor], factors: Tensor) -> Tensor:
        """The values (M, F) of functions that are known in the box, with factors (2 d, F)."""
        at_edge, at_inner = functions(torch.cat([self.edge, self.inner])).split([len(self.edge), len(self.inner)])
        growth = self.steps.unsqueeze(-1) * (at_edge[self.rows] - at_inner)
        return at_edge.index_add(0, self.rows, (self.shares @ factors) * growth)

    def moments(self, process: Process, scale: float) -> tuple[Tensor, Tensor]:
        """The mean and the variance (M,) of the function of a process whose deviations from its mean are scaled."""
        mean, edge, inner, steps = process.mean(self.edge), self.edge[self.rows], self.inner, self.steps
        variance = scale**2 * process.variance(self.edge)
        if not len(inner):
            return mean, variance
        growth = steps * (mean[self.rows] - process.mean(inner))
        at_edge, at_inner = variance[self.rows], scale**2 * process.variance(inner)
        between = scale**2 * process.between(edge, inner)
        of_growth = steps.square() * (at_edge + at_inner - 2.0 * between).clamp_min(0.0)
        both = (at_edge + of_growth + 2.0 * steps * (at_edge - between)).clamp_min(0.0)
        of_factors = self.shares.square().sum(-1) * (growth.square() + of_growth)
        return mean.index_add(0, self.rows, growth), variance.index_copy(0, self.rows, both + of_factors)


def factors(dim: int, count: int, generator: Generator) -> Tensor:
    """One for the mean, then draws for functions, for both sides of d inputs, (2 d, 1 + count)."""
    levels = torch.rand(2 * dim, count, generator=generator, dtype=torch.float64)
    return torch.cat([torch.ones(2 * dim, 1, dtype=torch.float64), -torch.log1p(-levels)], dim=-1)
