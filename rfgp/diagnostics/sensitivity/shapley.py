"""Shapley effects: shares of the variance of inputs that may depend on each other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from ..._support import checks
from .analysis import analysis
from .copula import GaussianCopula
from .estimate import Estimate, frame, shares, table
from .given import Inputs, checked_inputs
from .sampled import levels
from .sources import Functions

_EXACT, _PERMUTATIONS, _REPLICATES = 8, 16, 8
"""Up to so many inputs all subsets are taken, else those of so many random orders; for each of so many replicates."""


@dataclass(frozen=True)
class ShapleyEffects:
    """Shapley effects with their posterior, from :func:`shapley_effects`; (d,), or (T, d) for several outputs.

    :param names: the names of the d inputs.
    :param effects: the share of the variance of f of every input; they sum to one.
    :param standard_error: the standard errors of ``effects.value`` from the points, of the same shape.
    :param variance: the variance of f over the inputs, a number, or (T,).
    :param outside: the shares of every input, and of its variance, outside the training inputs, (2, d).

    >>> half, certain = torch.tensor([0.5, 0.5]), torch.zeros(2)
    >>> effects, variance = Estimate(half, half.expand(3, 2)), Estimate(torch.tensor(1.0), torch.ones(3))
    >>> found = ShapleyEffects(("length", "load"), effects, certain, variance, torch.zeros(2, 2))
    >>> print(found.table())
    input   Shapley effect
    length  0.500 (0.500, 0.500)
    load    0.500 (0.500, 0.500)
    """

    names: tuple[str, ...]
    effects: Estimate
    standard_error: Tensor
    variance: Estimate
    outside: Tensor

    def __str__(self) -> str:
        """The table, with intervals of probability 95 %."""
        return self.table()

    def table(self, level: float = 0.95) -> str:
        """The effects with intervals of probability ``level`` as plain text, the most important input first.

        Below these it names inputs of which much is outside the training inputs.
        """
        return table(self.names, {"Shapley effect": self.effects}, self.outside, level)

    def to_frame(self, level: float = 0.95) -> Any:
        """The effects as a pandas DataFrame, a row for every input (and output)."""
        return frame(self.names, {"effect": self.effects}, level)


@torch.no_grad()
def shapley_effects(
    model: Any, inputs: Inputs | GaussianCopula, *, num_functions: int = 200, num_points: int = 1024
) -> ShapleyEffects:
    r"""Shapley effects of the function of a model with uncertain inputs, dependent ones too.

    .. math:: \mathrm{Sh}_k = \frac1{d V} \sum_{S \not\ni k} \binom{d - 1}{|S|}^{-1} (e_S - e_{S \cup k}), \qquad
        e_S = E\, \mathrm{Var}[f(X) \mid X_S] = \tfrac12 E\, (f(X) - f(X'))^2

    where X' has the inputs S of X, and others that are drawn given these. Of independent inputs, an effect is between
    the first-order and the total index. With more than 8 inputs, 16 random orders for each replicate stand for all
    subsets. Points are 8 replicates of scrambled Sobol' points, whose differences tell the standard error.

    :param model: a fitted model as for :func:`sobol_indices`.
    :param inputs: a :class:`GaussianCopula`, or distributions of independent inputs.
    :param num_functions: the number S of functions drawn from the posterior, by PyTorch's random numbers.
    :param num_points: the number of points for every subset, of all replicates together.
    :raises ValueError: for a model without a fit or of complex targets, inputs far outside those of training, or fewer
        than 16 points.

    Source: Song, Nelson and Staum (2016); Owen and Prieur (2017), dependent inputs.

    >>> import gpytorch, rfgp
    >>> from rfgp.diagnostics.sensitivity import GaussianCopula, Normal, shapley_effects
    >>> x = torch.rand(100, 2)
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=32, input_dim=2)
    >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x, x[:, 0])
    >>> inputs = GaussianCopula([Normal(0.5, 0.1), Normal(0.5, 0.1)], [[1.0, 0.9], [0.9, 1.0]])
    >>> found = shapley_effects(model, inputs, num_functions=20)
    >>> found.effects.value.shape, round(float(found.effects.value.sum()), 6)
    (torch.Size([2]), 1.0)
    """
    count = checks.positive_integer("num_points", num_points) // _REPLICATES
    if count < 2:
        raise ValueError(f"expected num_points of at least {2 * _REPLICATES}, got {num_points}; take more")
    functions = checks.positive_integer("num_functions", num_functions)
    checks.fits_in_memory(8.0 * 4.0 * count * functions, f"{functions:,} functions at {count:,} points", "take fewer")
    copula = inputs if isinstance(inputs, GaussianCopula) else _independent(inputs)
    known = analysis(model, copula.inputs, functions)
    outputs, found = known.num_outputs or 1, []
    for seed in range(_REPLICATES):
        weights = dict(_weights(len(copula.inputs), seed))
        by_subset = known.of_functions(partial(_variances, copula, list(weights), count, seed, outputs))
        found.append((by_subset @ torch.stack(list(weights.values())), by_subset[..., 0]))
    parts, whole = (torch.stack(part) for part in zip(*found, strict=True))  # (R, F, 2, d) and (R, F, 2)
    variance = whole[..., 0].mean(0)
    effects = shares(parts[..., 0, :].mean(0), variance)
    error = shares(parts[..., 0, :] - effects * whole[..., :1], variance.expand(_REPLICATES, -1))
    has_means = known.waves is None or len(known.waves) == 1  # beside the draws of every set of functions
    return ShapleyEffects(
        known.names,
        known.estimate(effects, shares(parts[..., 1, :].mean(0), variance) if has_means else None),
        known.estimate(error.std(0) / _REPLICATES**0.5).value,
        known.estimate(variance),
        known.outside,
    )


def _independent(inputs: Inputs) -> GaussianCopula:
    by_name = checked_inputs(inputs)
    return GaussianCopula(by_name, torch.eye(len(by_name), dtype=torch.float64))


def _weights(dim: int, seed: int) -> Iterator[tuple[tuple[int, ...], Tensor]]:
    """Subsets of inputs, the empty one first, and with which weights (d,) their variances enter the effects."""
    if dim <= _EXACT:
        for size in range(dim):
            outside = 1.0 / (dim * math.comb(dim - 1, size))
            inside = 1.0 / (dim * math.comb(dim - 1, size - 1)) if size else 0.0
            for subset in combinations(range(dim), size):
                weights = torch.full((dim,), outside, dtype=torch.float64)
                weights[list(subset)] = -inside
                yield subset, weights
        return
    found: dict[tuple[int, ...], Tensor] = {}
    generator = torch.Generator().manual_seed(seed)
    for _ in range(_PERMUTATIONS):
        order = torch.randperm(dim, generator=generator).tolist()
        for place, k in enumerate(order):
            weights = found.setdefault(tuple(sorted(order[:place])), torch.zeros(dim, dtype=torch.float64))
            weights[k] += 1.0 / _PERMUTATIONS
            if place:
                weights[order[place - 1]] -= 1.0 / _PERMUTATIONS
    yield from found.items()


def _variances(
    copula: GaussianCopula, subsets: list[tuple[int, ...]], count: int, seed: int, outputs: int, functions: Functions
) -> Tensor:
    """The variances e of functions, and of their differences from the means before them, (F, 2, subsets)."""
    eps = torch.finfo(torch.float64).eps
    uniform = levels(count, 2 * len(copula.inputs), seed).clamp(eps, 1.0 - eps)
    normal, other = torch.special.ndtri(uniform).chunk(2, dim=-1)
    z = copula.correlated(normal)
    at_z, found = functions(copula.at(z)), []
    for subset in subsets:
        change = functions(copula.at(copula.given(z, list(subset), other))) - at_z
        apart = change - change[:, :outputs].repeat(1, change.shape[-1] // outputs)
        found.append(0.5 * torch.stack([change.square().mean(0), apart.square().mean(0)], dim=-1))
    return torch.stack(found, dim=-1)
