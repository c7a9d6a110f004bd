"""Which frequencies a grid has: the period from the reach of a kernel, and the orders of the largest weights."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
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
MOST_FEATURES = 1801
"""The largest number of features that is taken without being asked for: a second for an evidence with its gradient."""
_TOLD = 0.2
"""Frequencies are left out of which rows tell less than this share of what the prior does."""
_SLACK = 2.0
"""How much more may be lost before other frequencies are taken."""
_PERIODS = ((0.001, 600), (0.003, 600), (0.01, 600), (0.03, 600), (0.1, MOST_FEATURES), (0.3, math.inf))
"""Tolerances for copies of the data, and the numbers of features up to which they are taken."""


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

    def best(self, num_features: int | None, precision: float) -> Loss:
        """The grid of at most so many features that loses least, or of all frequencies of which rows tell something.

        :param precision: the number of rows, times the variance of the function over that of the noise.
        """
        if num_features is not None:
            return self._best_of(num_features)
        for tolerance, most in _PERIODS:
            spacing = self._spacing(tolerance)
            orders, told = self.told(spacing, precision, MOST_FEATURES // 2)
            orders = orders[told > _TOLD]
            if 2 * len(orders) + 1 < most:
                break
        return self.loss(FrequencyGrid(orders, spacing, self.bounds))

    def has_all(self, grid: FrequencyGrid, precision: float) -> bool:
        """Whether a grid has nearly all frequencies of which rows tell something, and a long enough period."""
        orders, told = self.told(grid.spacing, precision, len(grid.orders) + MOST_FEATURES)
        is_there = torch.isin(_numbers(orders), _numbers(grid.orders))
        _, tolerance = min((most, -level) for level, most in _PERIODS if grid.num_features < most)
        margins = 2.0 * math.pi / grid.spacing - self.extent
        copies = max(
            float(values[min(int((distances < margin).sum()), len(values) - 1)])
            for margin, (distances, values) in zip(margins, self._reaches, strict=True)
        )
        return bool((told[~is_there] <= _SLACK * _TOLD).all()) and copies <= -_SLACK * tolerance

    def told(self, spacing: Tensor, precision: float, count: int) -> tuple[Tensor, Tensor]:
        """The orders (H, d) of the largest weights, and what rows tell of each over what the prior does, (H,)."""
        orders = self._largest(spacing, count)
        return orders, precision * self._relative(orders, spacing)[1:] * self._periods(spacing)

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
            spacing = self._spacing(tolerance)
            orders = self._largest(spacing, (num_features - 1) // 2)
            choices.append(self.loss(FrequencyGrid(orders, spacing, self.bounds)))
        return min(choices, key=lambda choice: choice.lost)

    def _spacing(self, tolerance: float) -> Tensor:
        """The spacing (d,) with which values of the kernel at copies of the data are below a tolerance."""
        margin = [distance[int((value[:-1] > tolerance).sum())] for distance, value in self._reaches]
        return 2.0 * math.pi / (self.extent + torch.stack(margin))

    def _periods(self, spacing: Tensor) -> float:
        """The volume of a period over that of the box: of so many frequencies the rows see one."""
        return float((2.0 * math.pi / (spacing * self.extent)).prod())

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
            others = [_STEPS[::2] * extent for extent in self.extent.cpu()]
            others[axis] = torch.zeros(1, dtype=torch.float64)
            differences = torch.cartesian_prod(*others).reshape(-1, 1, len(self.extent)).to(self.extent)
            near, far = differences.repeat(1, len(distances), 1), differences.clone()
            near[..., axis], far[..., axis] = distances, 1e6 * distances[-1:]
            # not in one call: kernels that expand squared distances lose the digits of those that are small
            found, limit = (self.values(at.flatten(0, 1)).unflatten(0, at.shape[:2]) for at in (near, far))
            size = ((found - limit) / self.prior).abs().amax((0, -1))
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


def common_grid(
    choices: Sequence[GridChoice], precisions: Sequence[float], sizes: Sequence[int | None]
) -> FrequencyGrid:
    """One grid for kernels in a box: the period of the one with most features, and all frequencies that one has there.

    :param sizes: how many features each may have; the largest of these are as many as the grid may have.
    """
    bests = [choice.best(size, level).grid for choice, size, level in zip(choices, sizes, precisions, strict=True)]
    widest = max(bests, key=lambda grid: grid.num_features)
    most = max(MOST_FEATURES if size is None else size for size in sizes) // 2
    parts = [choice.told(widest.spacing, level, most) for choice, level in zip(choices, precisions, strict=True)]
    orders, told = (torch.cat(part) for part in zip(*parts, strict=True))
    unique, places = _numbers(orders).unique(return_inverse=True)
    largest = told.new_zeros(len(unique)).scatter_reduce(0, places, told, "amax")
    each = orders.new_zeros(len(unique), orders.shape[-1]).index_copy(0, places, orders)
    chosen = largest.argsort(descending=True, stable=True)[:most]
    return widest._replace(orders=each[chosen[largest[chosen] > _TOLD]])


def _numbers(orders: Tensor) -> Tensor:
    """A number for each of some orders (H, d), (H,)."""
    powers = (4 * _LARGEST_ORDER) ** torch.arange(orders.shape[-1], device=orders.device)
    return (orders * powers).sum(-1)


def bounds_of(x: Tensor) -> Tensor:
    """The box around inputs (..., N, d), somewhat wider than these, (2, d), in float64."""
    rows = x.detach().reshape(-1, x.shape[-1]).double()
    low, high = rows.amin(0), rows.amax(0)
    wider = torch.where(high > low, _WIDER * (high - low), low.abs().clamp_min(1.0) * _WIDER)
    return torch.stack([low - wider, high + wider])
