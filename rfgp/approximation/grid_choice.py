"""Which frequencies a grid has: the period from the reach of a kernel, and the orders of the largest weights."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..linalg.frequency_grid import FrequencyGrid

_WIDER = 0.05
"""By what fraction of the range of the inputs their box is wider, on every side."""
_TOLERANCES = (0.5, 0.3, 0.2, *(10.0 ** (-0.5 * k) for k in range(2, 13)))
"""Values of the kernel, relative to its variance, at the distance from which a copy of the data may be seen."""
_REACHES = torch.logspace(-3.0, 3.0, 601, dtype=torch.float64)
_STEPS = torch.linspace(-1.0, 1.0, 9, dtype=torch.float64)
_LARGEST_ORDER = 4096
_SPARE = {1: 1.0, 2: 2.0, 3: 4.0}
"""How many more orders a box has than those of the largest weights that are taken of it."""
_ENOUGH, _SIZES = 0.05, tuple(int(100 * 1.25**k) | 1 for k in range(14))
"""What may be lost, relative to the variance, where the number of features is open; the numbers that are tried."""


Weights = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class Loss(NamedTuple):
    """A grid, and what is lost with it: a multiple of what it cuts off of the variance, plus the range of errors."""

    grid: FrequencyGrid
    lost: float


class GridChoice:
    """The choice of a grid for a box of inputs.

    :param weights: takes orders (J, d) and a spacing (d,), and returns the weights of zero and of these for all
        outputs, (J + 1, T), and the sums of all weights, (T,).
    :param values: takes differences (n, d), and returns values of the kernel of every output, (n, T).
    :param bounds: the box, (2, d).
    """

    of_cut_off: ClassVar[float] = 100.0
    """How much more what is cut off matters to a posterior than the error by copies of the data, which data correct."""

    def __init__(self, weights: Weights, values: Callable[[Tensor], Tensor], bounds: Tensor) -> None:
        self.weights, self.values, self.bounds = weights, values, bounds
        self.extent = bounds[1] - bounds[0]
        self.prior = values(torch.zeros_like(bounds[:1])).squeeze(0)

    def best(self, num_features: int | None) -> Loss:
        """The grid of at most so many features that loses least, or with as few as lose little."""
        if num_features is not None:
            return self._best_of(num_features)
        found = self._best_of(_SIZES[0])
        for size in _SIZES[1:]:
            if found.lost <= _ENOUGH:
                break
            found = self._best_of(size)
        return found

    def loss(self, grid: FrequencyGrid) -> Loss:
        """What is lost with a grid: what it cuts off, and errors at some differences in the box but for a constant."""
        weights, total = self.weights(grid.orders, grid.spacing)
        zero, others = weights[0], weights[1:]
        cut_off = (total - zero - 2.0 * others.sum(0)).clamp_min(0.0)
        differences, values = self._some_values
        waves = torch.cos(differences @ (grid.orders * grid.spacing).mT)
        error = values - zero - 2.0 * waves @ others
        lost = (self.of_cut_off * cut_off + self.of_copies(error)) / self.prior
        return Loss(grid, float(lost.max()))

    def of_copies(self, error: Tensor) -> Tensor:
        """What copies of the data do, from errors of the kernel at some differences (n, T): constants do nothing."""
        return error.amax(0) - error.amin(0)

    def _best_of(self, num_features: int) -> Loss:
        choices = []
        for tolerance in _TOLERANCES:
            margin = [distance[int((value[:-1] > tolerance).sum())] for distance, value in self._reaches]
            spacing = 2.0 * math.pi / (self.extent + torch.stack(margin))
            orders = self._largest(spacing, (num_features - 1) // 2)
            choices.append(self.loss(FrequencyGrid(orders, spacing, self.bounds)))
        return min(choices, key=lambda choice: choice.lost)

    @functools.cached_property
    def _some_values(self) -> tuple[Tensor, Tensor]:
        """Differences on a coarse grid of the box, one of each two that are opposite, and the values there."""
        steps = torch.cartesian_prod(_STEPS[_STEPS >= 0.0], *[_STEPS] * (len(self.extent) - 1))
        differences = steps.reshape(-1, len(self.extent)).to(self.extent) * self.extent
        return differences, self.values(differences)

    @functools.cached_property
    def _reaches(self) -> list[tuple[Tensor, Tensor]]:
        """Distances along every axis, and the largest relative values from there on, less those at infinity."""
        reaches = []
        for axis in range(len(self.extent)):
            distances = _REACHES.to(self.extent) * self.extent[axis]
            along = torch.cat([distances, 1e6 * distances[-1:]])
            others = [_STEPS[::2] * extent for extent in self.extent.cpu()]
            others[axis] = torch.zeros(1, dtype=torch.float64)
            differences = torch.cartesian_prod(*others).reshape(-1, 1, len(self.extent)).to(self.extent)
            differences = differences.repeat(1, len(along), 1)
            differences[..., axis] = along
            found = self.values(differences.flatten(0, 1)).unflatten(0, differences.shape[:2])
            size = ((found[:, :-1] - found[:, -1:]) / self.prior).abs().amax((0, -1))
            reaches.append((distances, size.flip(0).cummax(0).values.flip(0)))
        return reaches

    def _largest(self, spacing: Tensor, count: int) -> Tensor:
        """The orders of the largest weights, one of each pair, (count, d)."""
        box = self._box(spacing, math.ceil(_SPARE[len(spacing)] * (2 * count + 1)))
        first = (box != 0).int().argmax(-1, keepdim=True)
        half = box[box.gather(-1, first).squeeze(-1) > 0]
        return half[self._relative(half, spacing)[1:].argsort(descending=True, stable=True)[:count]]

    def _relative(self, orders: Tensor, spacing: Tensor) -> Tensor:
        """The weights of zero and of orders (J, d), relative to the variances of the outputs and summed, (J + 1,)."""
        return (self.weights(orders, spacing)[0] / self.prior).sum(-1)

    def _box(self, spacing: Tensor, size: int) -> Tensor:
        """All orders of a box with at least so many where there are, (J, d); its sides end at weights of one level."""
        profiles = []
        for axis in range(len(spacing)):
            orders = torch.zeros(min(size, _LARGEST_ORDER), len(spacing), dtype=torch.long, device=spacing.device)
            orders[:, axis] = torch.arange(1, len(orders) + 1)
            profile = self._relative(orders, spacing)
            profiles.append((profile[1:] / profile.max()).flip(0).cummax(0).values.flip(0))
        for level in 10.0 ** -torch.arange(0.0, 30.0, 0.1, dtype=torch.float64):
            sides = [int((profile >= level).sum()) for profile in profiles]
            if math.prod(2 * side + 1 for side in sides) >= size:
                break
        ranges = [torch.arange(-side, side + 1, device=spacing.device) for side in sides]
        return torch.cartesian_prod(*ranges).reshape(-1, len(spacing))


class FieldGridChoice(GridChoice):
    """The choice for fields, of which a steady part may not be on the grid, and of which details are more."""

    of_cut_off: ClassVar[float] = 300.0

    def of_copies(self, error: Tensor) -> Tensor:
        return error.abs().amax(0)


def bounds_of(x: Tensor) -> Tensor:
    """The box around inputs (..., N, d), somewhat wider than these, (2, d), in float64."""
    rows = x.detach().reshape(-1, x.shape[-1]).double()
    low, high = rows.amin(0), rows.amax(0)
    wider = torch.where(high > low, _WIDER * (high - low), low.abs().clamp_min(1.0) * _WIDER)
    return torch.stack([low - wider, high + wider])
