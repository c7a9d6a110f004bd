"""Newton's method for the mode of a log posterior: damped steps, each of which raises it."""

from __future__ import annotations

import abc
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

MAX_ITERATIONS = 100
_LAST_DECREMENT = 1e-10
"""Twice what a step gains, in nats, below which it is the last one: the next one would gain about its square."""
_SUFFICIENT = 1e-4
_SMALLEST_STEP = 1e-10
_ROUNDING = 1e-13


class Point(NamedTuple):
    """Weights, what was summed over the rows there, the log posterior up to a constant, and its gradient."""

    weights: Tensor
    sums: Any
    value: Tensor
    gradient: Tensor


class NewtonSearch(abc.ABC):
    """A log posterior of weights that is maximized."""

    num_passes: int = 0
    """How many points were evaluated."""

    @abc.abstractmethod
    def zeros(self) -> Tensor:
        """Weights of zero."""

    @abc.abstractmethod
    def point(self, weights: Tensor) -> Point:
        """The log posterior at weights."""

    @abc.abstractmethod
    def direction(self, point: Point) -> Tensor:
        """The Newton step, or one of ascent where the Hessian is not negative definite there."""

    @torch.no_grad()
    def mode(self, start: Tensor | None = None) -> Tensor:
        """The weights of the largest log posterior.

        :param start: where to begin, if the log posterior is finite there; default: zeros.
        """
        point = self.point(self.zeros() if start is None else start)
        if start is not None and not math.isfinite(point.value):
            point = self.point(self.zeros())
        if not math.isfinite(point.value):
            raise ValueError(
                "expected a finite log density of the targets at the mean function, got none; rescale the targets, or "
                "give the model a mean near them"
            )
        for _ in range(MAX_ITERATIONS):
            direction = self.direction(point)
            decrement = float((direction * point.gradient).sum())
            if decrement <= _LAST_DECREMENT:
                return point.weights + direction
            point = self._ascent(point, direction, decrement)
        raise ValueError(
            f"expected Newton's method to converge in {MAX_ITERATIONS} steps, got one that still gains "
            f"{decrement / 2.0:.3g} nats; rescale the data, or change the parameters of the likelihood"
        )

    def _ascent(self, start: Point, direction: Tensor, decrement: float) -> Point:
        """The point after a step that gains enough, which is shortened until it does."""
        step = 1.0
        while step > _SMALLEST_STEP:
            point = self.point(start.weights + step * direction)
            gain = float(point.value - start.value)
            if gain >= _SUFFICIENT * step * decrement - _ROUNDING * abs(float(start.value)):
                return point
            slope = step * decrement
            best = 0.5 * slope / (slope - gain) if math.isfinite(gain) else 0.1  # of the parabola through both
            step *= min(max(best, 0.1), 0.5)
        raise ValueError(
            "expected a log posterior that rises along its gradient, got none; the likelihood is not smooth enough, or "
            "its values overflow: rescale the targets"
        )
