"""Cosines and sines of equispaced frequencies, whose Gram matrix is a function of differences of frequencies."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .._support import checks


class FrequencyGrid(NamedTuple):
    r"""The features :math:`[1, \sqrt2 \cos \theta_j, \sqrt2 \sin \theta_j]`, with phases
    :math:`\theta_j = \sum_a j_a h_a (x_a - c_a)`.

    :param orders: whole numbers j, one of each pair of j and -j and without zero, (H, d).
    :param spacing: h, (d,), in float64.
    :param bounds: between which the rows that are summed have to lie, (2, d), in float64; c is the middle.
    :param columns: which columns of the inputs these are, (d,); default: all.
    """

    orders: Tensor
    spacing: Tensor
    bounds: Tensor
    columns: Tensor | None = None

    def clone(self) -> FrequencyGrid:
        """The same in memory of its own."""
        columns = None if self.columns is None else self.columns.clone()
        return FrequencyGrid(self.orders.clone(), self.spacing.clone(), self.bounds.clone(), columns)

    @property
    def num_features(self) -> int:
        """D = 2 H + 1."""
        return 2 * len(self.orders) + 1

    @property
    def half(self) -> tuple[int, ...]:
        """The largest order of every input."""
        return half_of(self.orders)

    @property
    def middle(self) -> Tensor:
        """The middle of the box as a row of the inputs, (1, d)."""
        return self._row(self.bounds.mean(0, keepdim=True))

    @property
    def far(self) -> Tensor:
        """A point outside the box as a row of the inputs, (1, d)."""
        return self._row(2.0 * self.bounds[1:] - self.bounds[:1])

    def _row(self, point: Tensor) -> Tensor:
        if self.columns is None:
            return point
        width = int(self.columns.max()) + 1
        return point.new_zeros(1, width).index_copy(-1, self.columns, point)

    def phases(self, x: Tensor) -> Tensor:
        """The products h (x - c), (..., N, d), in float64."""
        inputs = (x if self.columns is None else x.index_select(-1, self.columns)).double()
        checks.inputs(inputs, len(self.spacing))
        return (inputs - self.bounds.mean(0)) * self.spacing

    def phases_of_rows(self, x: Tensor) -> Tensor:
        """:meth:`phases` of rows that are summed; a ValueError outside the bounds."""
        phases = self.phases(x)
        is_inside = self.is_inside(phases)
        if not bool(is_inside.all()):
            column = int((~is_inside).flatten(0, -2).any(0).nonzero()[0])
            seen = phases.detach()[..., column] / self.spacing[column] + self.bounds.mean(0)[column]
            low, high = self.bounds[:, column].tolist()
            raise ValueError(
                f"expected rows between {low:.6g} and {high:.6g} in column {column}, the box of the Fourier grid, got "
                f"{float(seen.min()):.6g} to {float(seen.max()):.6g}; approximate the kernel with train_inputs that "
                "cover them, such as the corners of a larger box"
            )
        return phases

    def is_inside(self, phases: Tensor) -> Tensor:
        """Whether coordinates of phases (..., N, d) are inside the bounds, (..., N, d)."""
        return phases.detach().abs() <= 0.5 * (self.bounds[1] - self.bounds[0]) * self.spacing

    def features(self, phases: Tensor) -> Tensor:
        """The features (..., N, D) for phases (..., N, d)."""
        angles = phases @ self.orders.to(phases).mT
        root = math.sqrt(2.0)
        ones = angles.new_ones(*angles.shape[:-1], 1)
        return torch.cat([ones, root * angles.cos(), root * angles.sin()], dim=-1)

    def selecting(self, dims: Tensor) -> FrequencyGrid:
        """The same for inputs with more columns, of which these are selected before."""
        return self._replace(columns=dims if self.columns is None else dims[self.columns])


def half_of(orders: Tensor) -> tuple[int, ...]:
    """The largest modulus of orders (H, d) in every column."""
    if not len(orders):
        return (0,) * orders.shape[-1]
    return tuple(orders.abs().amax(0).tolist())


def gram_of_lags(lags: Tensor, orders: Tensor, half: tuple[int, ...] | None = None) -> Tensor:
    """The Gram matrices of the features (..., D, D) from sums of cosines and sines of all differences of frequencies.

    :param lags: the sums of cosines and of sines, (..., 2, (4 h_1 + 1) ... (4 h_d + 1)).
    :param orders: those of the grid, (H, d).
    :param half: h, for some of the orders of a grid; default: the largest of these.
    """
    half = half_of(orders) if half is None else half
    cosines, sines = lags.unbind(-2)
    first, second = orders.unsqueeze(1), orders.unsqueeze(0)
    minus, plus, single = (_positions(j, half) for j in (first - second, first + second, orders))
    zero = _positions(torch.zeros_like(orders[:0].sum(0)), half)
    root = math.sqrt(2.0)
    of_cosines, of_sines = root * cosines[..., single], root * sines[..., single]
    near, far = cosines[..., minus], cosines[..., plus]
    mixed = sines[..., plus] - sines[..., minus]
    corner = cosines[..., zero][..., None, None]
    top = torch.cat([corner, of_cosines.unsqueeze(-2), of_sines.unsqueeze(-2)], dim=-1)
    middle = torch.cat([of_cosines.unsqueeze(-1), near + far, mixed], dim=-1)
    bottom = torch.cat([of_sines.unsqueeze(-1), mixed.mT, near - far], dim=-1)
    return torch.cat([top, middle, bottom], dim=-2)


def head_of_gram(lags: Tensor, orders: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The numbers (K,) of the features of zero and of the first orders, and the Gram matrices (..., K, K) of these."""
    first = torch.arange(min(count, len(orders)), device=orders.device)
    numbers = torch.cat([first.new_zeros(1), 1 + first, 1 + len(orders) + first])
    return numbers, gram_of_lags(lags, orders[first], half_of(orders))


def cross_of_lags(lags: Tensor, orders: Tensor) -> Tensor:
    """The sums of the features (..., D) from those of cosines and sines, (..., 2, L), see :func:`gram_of_lags`."""
    cosines, sines = lags.unbind(-2)
    half, root = half_of(orders), math.sqrt(2.0)
    single, zero = _positions(orders, half), _positions(torch.zeros_like(orders[:0].sum(0)), half)
    return torch.cat([cosines[..., zero, None], root * cosines[..., single], root * sines[..., single]], dim=-1)


def series_of_weights(weights: Tensor, orders: Tensor) -> Tensor:
    """The coefficients (S, 2, (2 h_1 + 1) ... (2 h_d + 1)) of cosines and sines in functions of weights (D, S)."""
    half, scaled = half_of(orders), math.sqrt(2.0) * weights[1:].mT
    sizes = [2 * h + 1 for h in half]
    strides = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    places = ((orders + orders.new_tensor(half)) * orders.new_tensor(strides)).sum(-1)
    series = weights.new_zeros(weights.shape[-1], 2, math.prod(sizes))
    series[:, 0, math.prod(sizes) // 2] = weights[0]
    series[:, :, places] = scaled.unflatten(-1, (2, -1))
    return series


def lag_half(orders: Tensor) -> tuple[int, ...]:
    """The largest difference of frequencies of every input, in units of the spacing."""
    return tuple(2 * h for h in half_of(orders))


def _positions(differences: Tensor, half: tuple[int, ...]) -> Tensor:
    """Where differences (..., d) of orders are among all of them, flattened."""
    result = torch.zeros_like(differences[..., 0])
    for axis, h in enumerate(half):
        result = result * (4 * h + 1) + differences[..., axis] + 2 * h
    return result
