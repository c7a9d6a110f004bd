"""Maximization by L-BFGS that says truly how it ended, and keeps the best point on any end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

_RADIUS = 3.0
_SMALLEST_RADIUS = 1e-3
_STALLS = 2


class NoValueError(Exception):
    """There is no finite value at a point."""


class _Limit(Exception):
    """The limit of evaluations is reached."""


@dataclass
class Ascent:
    """The best point of a maximization, and how it ended."""

    point: np.ndarray
    value: float
    gradient: np.ndarray
    evaluations: int = 0
    converged: bool = False
    message: str = "interrupted"


def projected(gradient: np.ndarray, point: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """The gradient without the components that point out of the bounds."""
    blocked = ((point <= lower) & (gradient < 0)) | ((point >= upper) & (gradient > 0))
    return np.where(blocked, 0.0, gradient)


class Maximizer:
    """L-BFGS-B in a box of radius 3 around the best point, again from there until the projected gradient is zero.

    ``evaluate`` returns value and gradient, or raises NoValueError, which shrinks the box. ``tolerance`` is the largest
    projected gradient that counts as zero, and ``precision`` the gain that counts as none.
    """

    def __init__(
        self,
        evaluate: Callable[[np.ndarray], tuple[float, np.ndarray]],
        lower: np.ndarray,
        upper: np.ndarray,
        limit: int,
        tolerance: float,
        precision: float,
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        self._evaluate, self.lower, self.upper = evaluate, lower, upper
        self.limit, self.tolerance, self.precision, self.is_late = limit, tolerance, precision, is_late
        self.best: Ascent | None = None
        self.evaluations = 0

    def _value(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        if self.best is not None and np.array_equal(point, self.best.point):
            return -self.best.value, -self.best.gradient
        if self.evaluations >= self.limit or (self.best is not None and self.is_late()):
            raise _Limit
        self.evaluations += 1
        value, gradient = self._evaluate(point)
        if self.best is None or value > self.best.value:
            self.best = Ascent(point.copy(), value, gradient)
        return -value, -gradient

    def run(self, *starts: np.ndarray) -> Ascent:
        """Maximize from the best of some points."""
        failure = NoValueError()
        try:
            for start in starts:
                try:
                    self._value(np.clip(start, self.lower, self.upper))
                except NoValueError as error:
                    failure = error
        except _Limit:
            return self._end(False, self._limit_message)
        if self.best is None:
            raise failure
        radius, stalls = _RADIUS, 0
        while True:
            best = self.best
            slope = float(np.abs(self._projected(best)).max(initial=0.0))
            if slope <= self.tolerance:
                return self._end(True, "converged: the gradient is zero to tolerance")
            lower, upper = np.maximum(self.lower, best.point - radius), np.minimum(self.upper, best.point + radius)
            try:
                scipy.optimize.minimize(
                    self._value,
                    best.point,
                    jac=True,
                    method="L-BFGS-B",
                    bounds=scipy.optimize.Bounds(lower, upper),
                    options={"maxfun": 2 * self.limit, "maxiter": self.limit, "ftol": 0.0, "gtol": self.tolerance},
                )
            except _Limit:
                return self._end(False, self._limit_message)
            except NoValueError:
                radius = radius / 4.0
                if radius < _SMALLEST_RADIUS:
                    return self._end(False, "stopped: the evidence cannot be evaluated around the best point")
                continue
            is_stalled = self.best.value - best.value <= self.precision * max(1.0, abs(best.value))
            stalls = stalls + 1 if is_stalled else 0
            if stalls >= _STALLS:
                slope = float(np.abs(self._projected(self.best)).max(initial=0.0))
                if slope <= self.tolerance:
                    continue
                return self._end(
                    False,
                    "stopped: no step raises the evidence at working precision, with a largest gradient of "
                    f"{slope:.2g} nats per row and e-fold of a parameter",
                )

    @property
    def _limit_message(self) -> str:
        if self.evaluations < self.limit:
            return "stopped at the time limit; raise time_limit to go on"
        return "stopped at the limit of evaluations; raise max_evaluations to go on"

    def _projected(self, at: Ascent) -> np.ndarray:
        return projected(at.gradient, at.point, self.lower, self.upper)

    def _end(self, converged: bool, message: str) -> Ascent:
        if self.best is None:
            raise NoValueError
        self.best.evaluations, self.best.converged, self.best.message = self.evaluations, converged, message
        return self.best
