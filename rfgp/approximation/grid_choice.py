"""Which frequencies a grid has: the period from the reach of a kernel, and the orders of the largest weights."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..linalg.frequency_grid import FrequencyGrid

_WIDER = 0.05
"""By what fraction of the range of the inputs their box is wider, on every side."""
_TOLERANCES = tuple(10.0 ** (-0.5 * k) for k in range(2, 13))
"""Values of the kernel, relative to its variance, at the distance from which a copy of the data may be seen."""
_REACHES = torch.logspace(-3.0, 3.0, 601, dtype=torch.float64)
_LARGEST_ORDER = 4096
_SPARE = {1: 1.0, 2: 2.0, 3: 4.0}
"""How many more orders a box has than those of the largest weights that are taken of it."""

Weights = Callable[[Tensor, Tensor], Tensor]
"""Takes orders (J, d) and a spacing (d,), and returns weights (J,)."""
Values = Callable[[Tensor], Tensor]
"""Takes differences (n, d), and returns values of the kernel (n,)."""


def bounds_of(x: Tensor) -> Tensor:
    """The box around inputs (..., N, d), somewhat wider than these, (2, d), in float64."""
    rows = x.detach().reshape(-1, x.shape[-1]).double()
    low, high = rows.amin(0), rows.amax(0)
    wider = torch.where(high > low, _WIDER * (high - low), low.abs().clamp_min(1.0) * _WIDER)
    return torch.stack([low - wider, high + wider])


def chosen_grid(weights: Weights, values: Values, bounds: Tensor, num_features: int) -> FrequencyGrid:
    """The grid of at most so many features that loses least: by what it cuts off, and by copies of the data."""
    extent, prior = bounds[1] - bounds[0], float(values(torch.zeros_like(bounds[:1])))
    reaches = [_reach(values, axis, extent) for axis in range(len(extent))]
    best, least = None, math.inf
    for tolerance in _TOLERANCES:
        ends = [int((value[:-1] > tolerance * prior).sum()) for _, value in reaches]
        margin = torch.stack([distance[end] for (distance, _), end in zip(reaches, ends, strict=True)])
        seen = max(float(value[end]) / prior for (_, value), end in zip(reaches, ends, strict=True))
        spacing = 2.0 * math.pi / (extent + margin)
        orders, kept = _largest(weights, spacing, (num_features - 1) // 2)
        lost = max(tolerance, seen) + abs(1.0 - kept / prior)
        if lost < least:
            best, least = FrequencyGrid(orders, spacing, bounds), lost
    if best is None:
        raise ValueError("expected a kernel with finite values, got another; correct its parameters")
    return best


def _reach(values: Values, axis: int, extent: Tensor) -> tuple[Tensor, Tensor]:
    """Distances along an axis, and the largest values of the kernel from there on, less that at infinity."""
    distances = _REACHES.to(extent) * extent[axis]
    differences = distances.new_zeros(len(distances) + 1, len(extent))
    differences[:, axis] = torch.cat([distances, 1e6 * distances[-1:]])
    found = values(differences)
    size = (found[:-1] - found[-1]).abs()
    return distances, size.flip(0).cummax(0).values.flip(0)


def _largest(weights: Weights, spacing: Tensor, count: int) -> tuple[Tensor, float]:
    """The orders of the largest weights, one of each pair, (count, d), and the sum of the weights that they have."""
    box = _box(weights, spacing, math.ceil(_SPARE[len(spacing)] * (2 * count + 1)))
    of_box = weights(box, spacing)
    first = (box != 0).int().argmax(-1, keepdim=True)
    is_half = box.gather(-1, first).squeeze(-1) > 0
    half, of_half = box[is_half], of_box[is_half]
    top = of_half.argsort(descending=True, stable=True)[:count]
    zero = float(of_box[(box == 0).all(-1)])
    return half[top], zero + 2.0 * float(of_half[top].sum())


def _box(weights: Weights, spacing: Tensor, size: int) -> Tensor:
    """All orders of a box with at least so many where there are, (J, d), whose sides end at weights of one level."""
    profiles = []
    for axis in range(len(spacing)):
        orders = torch.zeros(min(size, _LARGEST_ORDER) + 1, len(spacing), dtype=torch.long, device=spacing.device)
        orders[:, axis] = torch.arange(len(orders))
        profile = weights(orders, spacing)
        profiles.append((profile / profile.max()).flip(0).cummax(0).values.flip(0))
    for level in 10.0 ** -torch.arange(0.0, 30.0, 0.1, dtype=torch.float64):
        sides = [int((profile >= level).sum().clamp_min(1)) - 1 for profile in profiles]
        if math.prod(2 * side + 1 for side in sides) >= size:
            break
    ranges = [torch.arange(-side, side + 1, device=spacing.device) for side in sides]
    return torch.cartesian_prod(*ranges).reshape(-1, len(spacing))
