"""Variances of conditional means by quasi-Monte Carlo, for functions of which only values are known."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from ...approximation.landmarks import Landmarks
from ...approximation.reference_tensor import reference_tensor
from ...inference.posterior.covariance import ResidualCovariance
from .closed_form import PartialVariances
from .inputs import InputDistribution, points
from .residual import ResidualFunctions


class SampledFunctions:
    r"""The posterior mean of a model and functions drawn from it, by their values.

    .. math:: f_s(x) = \mu(x) + \phi(x) w_s + \sqrt{r(x)}\, \epsilon_s(x), \qquad r(x) = k(x, x) - |\phi(x)|^2

    What landmarks leave over of a shift-invariant kernel is drawn as functions in place of independent values.
    """

    def __init__(self, model: Any, num_functions: int) -> None:
        self.model, self.samples = model, model.sample_functions(num_functions)
        self.residual = _residual(model, num_functions)

    @torch.no_grad()
    def drawn(self, x: Tensor) -> Tensor:
        """The values of the functions drawn at x (N, d), (S, N) or (S, N, T)."""
        values = self.samples(x)
        values = values.mT if self.model.noise.is_batched else values
        if self.residual is not None:
            return values + self.residual(x)
        draws = self.model, *self.model.further_draws.of(self.model)
        parts = [part.covar_module.residual_covariance(x) for part in draws]
        residual = functools.reduce(ResidualCovariance.plus, parts) if None not in parts else None
        if residual is None:
            return values
        mean = residual.scaled(residual.variances.new_ones(()) / len(parts))
        if self.model.noise.is_batched:
            deviations = mean.variance().sqrt()
            deviations = deviations.mT if deviations.dim() > 1 else deviations.unsqueeze(-1)
            return values + deviations * torch.randn_like(values)
        return values + mean.draws(len(values)).reshape(values.shape)

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """The values at x (N, d), (N, (1 + S) T): those of the mean first."""
        x = x.to(reference_tensor(self.model.covar_module))
        mean, drawn = self.model.posterior(x).mean, self.drawn(x)
        mean = mean.mT if self.model.noise.is_batched else mean
        values = torch.cat([mean.unsqueeze(0), drawn]).double().cpu()
        return values.unsqueeze(-1).transpose(0, 1).flatten(1) if values.dim() == 2 else values.movedim(1, 0).flatten(1)


def _residual(model: Any, num_functions: int) -> ResidualFunctions | None:
    """What landmarks of one output leave over; None for other features, and for kernels without waves."""
    kernel = model.covar_module
    whole = kernel.family
    has_landmarks = isinstance(whole.maps, Landmarks) and whole.unscaled.kernel is whole.kernel
    if not has_landmarks or kernel.active_dims is not None or model.noise.is_batched:
        return None
    try:
        return ResidualFunctions(kernel, num_functions)
    except ValueError:
        return None


def levels(num_points: int, dim: int, seed: int) -> Tensor:
    """Scrambled Sobol' points in the unit cube, (num_points, dim)."""
    return SobolEngine(dim, scramble=True, seed=seed).draw(num_points, dtype=torch.float64)


def sampled_variances(
    functions: Callable[[Tensor], Tensor],
    inputs: Sequence[InputDistribution],
    num_points: int,
    second_order: bool,
    num_outputs: int = 1,
    seed: int = 0,
) -> tuple[PartialVariances, PartialVariances]:
    r"""The estimates of Saltelli et al. (2010) and Jansen (1999) from scrambled Sobol' points.

    .. math:: V_k \approx \frac1N \sum_i f(B)_i (f(A_B^k) - f(A))_i, \qquad
        V - V_{-k} \approx \frac{1}{2N} \sum_i (f(A) - f(A_B^k))_i^2

    Those of all functions, and those of their differences from the first one, which is the mean.
    """
    dim, distributions = len(inputs), list(inputs)
    a, b = (points(distributions, part) for part in levels(num_points, 2 * dim, seed).chunk(2, dim=-1))
    mixed = [functions(_with_column(a, b, k)) for k in range(dim)]
    turned = [functions(_with_column(b, a, k)) for k in range(dim)] if second_order else None
    at_a, at_b = functions(a), functions(b)

    def differences(values: Tensor) -> Tensor:
        return values - values[:, :num_outputs].repeat(1, values.shape[-1] // num_outputs)

    return (
        _estimated(at_a, at_b, mixed, turned),
        _estimated(differences(at_a), differences(at_b), [differences(one) for one in mixed], None),
    )


def _estimated(
    at_a: Tensor, at_b: Tensor, mixed: Sequence[Tensor], turned: Sequence[Tensor] | None
) -> PartialVariances:
    """The estimates from values (N, F) at A, at B, and at A with a column of B for each input.

    :param turned: those at B with a column of A, where pairs are wanted.
    """
    mean = 0.5 * (at_a.mean(0) + at_b.mean(0))
    at_a, at_b = at_a - mean, at_b - mean
    variance = 0.5 * (at_a.square().mean(0) + at_b.square().mean(0))
    single = [(at_b * (value - mean - at_a)).mean(0) for value in mixed]
    others = [variance - 0.5 * (at_a - value + mean).square().mean(0) for value in mixed]
    pairs = None
    if turned is not None:
        dim = len(mixed)
        pairs = variance.new_zeros(len(variance), dim, dim)
        product = (at_a * at_b).mean(0)
        for k, other in combinations(range(dim), 2):
            value = ((mixed[k] - mean) * (turned[other] - mean)).mean(0) - product
            pairs[:, k, other] = pairs[:, other, k] = value
    return PartialVariances(mean, variance, torch.stack(single, -1), torch.stack(others, -1), pairs)


def sampled_means(
    functions: Callable[[Tensor], Tensor], inputs: Sequence[InputDistribution], grid: Tensor, num_points: int
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
