"""Variances of conditional means by quasi-Monte Carlo, for functions of which only values are known."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from ...approximation.reference_tensor import reference_tensor
from .closed_form import PartialVariances
from .inputs import InputDistribution, points


class SampledFunctions:
    r"""The posterior mean of a model and functions drawn from it, by their values.

    .. math:: f_s(x) = \mu(x) + \phi(x) w_s + \sqrt{r(x)}\, \epsilon_s(x), \qquad r(x) = k(x, x) - |\phi(x)|^2
    """

    def __init__(self, model: Any, num_functions: int) -> None:
        self.model, self.samples = model, model.sample_functions(num_functions)

    @torch.no_grad()
    def drawn(self, x: Tensor) -> Tensor:
        """The values of the functions drawn at x (N, d), (S, N) or (S, N, T)."""
        values = self.samples(x)
        values = values.mT if self.model.noise.is_batched else values
        parts = [
            part.covar_module.residual_variance(x) for part in (self.model, *self.model.further_draws.of(self.model))
        ]
        variances = [part.mT if part.dim() > 1 else part.reshape(len(x), -1) for part in parts if part is not None]
        if not variances:
            return values
        deviations = torch.stack(variances).mean(0).sqrt().expand(len(x), values.shape[2:].numel())
        return values + deviations.reshape(values.shape[1:]) * torch.randn_like(values)

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """The values at x (N, d), (N, (1 + S) T): those of the mean first."""
        x = x.to(reference_tensor(self.model.covar_module))
        mean, drawn = self.model.posterior(x).mean, self.drawn(x)
        mean = mean.mT if self.model.noise.is_batched else mean
        values = torch.cat([mean.unsqueeze(0), drawn]).double().cpu()
        return values.unsqueeze(-1).transpose(0, 1).flatten(1) if values.dim() == 2 else values.movedim(1, 0).flatten(1)


def levels(num_points: int, dim: int, seed: int) -> Tensor:
    """Scrambled Sobol' points in the unit cube, (num_points, dim)."""
    return SobolEngine(dim, scramble=True, seed=seed).draw(num_points, dtype=torch.float64)


def sampled_variances(
    functions: SampledFunctions, inputs: Sequence[InputDistribution], num_points: int, second_order: bool
) -> PartialVariances:
    r"""The estimates of Saltelli et al. (2010) and Jansen (1999) from scrambled Sobol' points.

    .. math:: V_k \approx \frac1N \sum_i f(B)_i (f(A_B^k) - f(A))_i, \qquad
        V - V_{-k} \approx \frac{1}{2N} \sum_i (f(A) - f(A_B^k))_i^2
    """
    dim, distributions = len(inputs), list(inputs)
    a, b = (points(distributions, part) for part in levels(num_points, 2 * dim, seed=0).chunk(2, dim=-1))
    at_a, at_b = functions(a), functions(b)
    mean = 0.5 * (at_a.mean(0) + at_b.mean(0))
    at_a, at_b = at_a - mean, at_b - mean
    variance = 0.5 * (at_a.square().mean(0) + at_b.square().mean(0))
    single, others, mixed = [], [], []
    for k in range(dim):
        value = functions(_with_column(a, b, k)) - mean
        single.append((at_b * (value - at_a)).mean(0))
        others.append(variance - 0.5 * (at_a - value).square().mean(0))
        if second_order:
            mixed.append((value, functions(_with_column(b, a, k)) - mean))
    pairs = None
    if second_order:
        pairs = variance.new_zeros(len(variance), dim, dim)
        product = (at_a * at_b).mean(0)
        for k, other in combinations(range(dim), 2):
            value = (mixed[k][0] * mixed[other][1]).mean(0) - product
            pairs[:, k, other] = pairs[:, other, k] = value
    return PartialVariances(mean, variance, torch.stack(single, -1), torch.stack(others, -1), pairs)


def sampled_means(
    functions: SampledFunctions, inputs: Sequence[InputDistribution], grid: Tensor, num_points: int
) -> Tensor:
    """The conditional means along a grid (G, d) by averages over the same points, (G, d, F)."""
    x = points(list(inputs), levels(num_points, len(inputs), seed=0))
    means = []
    for k in range(len(inputs)):
        rows = x.repeat(len(grid), 1, 1)
        rows[..., k] = grid[:, k, None]
        means.append(torch.stack([functions(row).mean(0) for row in rows]))
    return torch.stack(means, dim=1)


def _with_column(x: Tensor, other: Tensor, k: int) -> Tensor:
    result = x.clone()
    result[:, k] = other[:, k]
    return result
