"""The most probable parameters of a model, and draws of what else the rows allow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DEGREES = 8.0
"""Degrees of freedom of the proposals."""
TOLERANCE = 1e-7
"""The part of the log density to which most probable parameters are found."""
_LEAST_CURVATURE = 0.1
_STEP = 2e-3
_EDGE = 1e-4
"""Quasi-random levels keep so far from 0 and 1."""
_WEAK = 1e10
"""What stands for the loss of parameters that have none."""


class LogPosterior(Protocol):
    """The density of parameters given rows, on a scale where it is about normal."""

    def loss(self, vector: Floats, has_gradient: bool = True) -> tuple[float, Floats]:
        """Minus the log density at a vector (p,), and its gradient if wanted; infinite where there is none."""
        ...

    @property
    def bounds(self) -> Sequence[tuple[float, float]]:
        """The least and the largest value of each parameter."""
        ...


class Mode(NamedTuple):
    """The most probable parameters (p,), minus the log density there, and a root (p, p) of about their covariance.

    The covariance is the inverse Hessian of L-BFGS, by the last steps of the search.
    """

    vector: Floats
    loss: float
    root: Floats


class _Whitened:
    """A density by steps from a vector, in units of a root of their covariance; steps out of bounds cost squares."""

    def __init__(self, posterior: LogPosterior, start: Floats, root: Floats) -> None:
        self.posterior, self.start, self.root = posterior, start, root
        self.low, self.high = np.transpose(posterior.bounds)
        self.unit = np.linalg.norm(root, axis=1)
        self.bounds = [(-math.inf, math.inf)] * len(start)

    def vector(self, steps: Floats) -> Floats:
        """The vector (p,) within the bounds."""
        found: Floats = np.clip(self.start + self.root @ steps, self.low, self.high)
        return found

    def loss(self, steps: Floats, has_gradient: bool = True) -> tuple[float, Floats]:
        vector = self.vector(steps)
        excess = (self.start + self.root @ steps - vector) / self.unit
        value, slope = self.posterior.loss(vector, has_gradient)
        slope = np.where(excess == 0.0, slope, excess / self.unit)
        return value + 0.5 * float(excess @ excess), slope @ self.root


def most_probable(
    posterior: LogPosterior,
    start: Floats,
    most_steps: int = 100,
    root: Floats | None = None,
    tolerance: float = TOLERANCE,
) -> Mode:
    """Where L-BFGS finds the density to be largest.

    :param start: where the search begins, (p,).
    :param most_steps: how many iterations it has at most.
    :param root: a root (p, p) of about the covariance of the parameters, which halves the number of iterations.
    :param tolerance: the search ends where an iteration gains less than such a part of the log density.

    >>> class Normal:
    ...     bounds = [(-9.0, 9.0)]
    ...     def loss(self, vector, has_gradient=True):
    ...         return 0.5 * float((vector - 1.0) @ (vector - 1.0)), vector - 1.0
    >>> most_probable(Normal(), np.zeros(1)).vector.round(3)
    array([1.])
    """

    if root is not None:
        whitened = _Whitened(posterior, start, root)
        steps, loss, of_steps = most_probable(whitened, np.zeros(len(start)), most_steps, tolerance=tolerance)
        return Mode(whitened.vector(steps), loss, root @ of_steps)

    def finite(vector: Floats) -> tuple[float, Floats]:
        value, gradient = posterior.loss(vector)
        return (value, gradient) if np.isfinite(value) else (_WEAK, np.zeros_like(vector))

    options = {"maxiter": most_steps, "ftol": tolerance, "gtol": 1e-3, "maxcor": 20}
    bounds = list(posterior.bounds)
    found = scipy.optimize.minimize(finite, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return Mode(found.x, float(found.fun), _root(found.hess_inv.todense()))


def _root(covariance: Floats) -> Floats:
    """A root (p, p) of a covariance that is neither very narrow nor wider than the widest that proposals have."""
    values, directions = np.linalg.eigh(0.5 * (covariance + covariance.T))
    found: Floats = directions * np.sqrt(values.clip(1e-6, 1.0 / _LEAST_CURVATURE))
    return found


class ParameterDraws(NamedTuple):
    """Draws (S, p) of the parameters, the mode among them or not, and a root (p, p) of their normal covariance."""

    vectors: Floats
    root: Floats


def parameter_draws(
    posterior: LogPosterior, mode: Floats, count: int, num_proposals: int = 256, seed: int = 0
) -> ParameterDraws:
    r"""Draws of equal weight, by importance resampling from Student's t at the mode.

    Proposals are quasi-random points of a t distribution with eight degrees of freedom, whose scale is the inverse of
    the Hessian by differences of gradients. Their weights are truncated at :math:`S^{-1/2}` of their sum.

    :param mode: the most probable parameters, (p,).
    :param count: the number of draws.
    :param num_proposals: from how many points they are taken.

    Source: Tierney and Kadane (1986), normal approximation at the mode; Ionides (2008), truncated importance sampling.

    >>> class Normal:
    ...     bounds = [(-9.0, 9.0)]
    ...     def loss(self, vector, has_gradient=True):
    ...         return 0.5 * float(vector @ vector), vector
    >>> draws = parameter_draws(Normal(), np.zeros(1), count=64).vectors
    >>> bool(abs(draws.mean()) < 0.1), bool(abs(draws.std() - 1.0) < 0.1)
    (True, True)
    """
    size, start = len(mode), posterior.loss(mode)[1]
    curvature = np.stack([_slope_change(posterior, mode, start, step) for step in _STEP * np.eye(size)]) / _STEP
    values, directions = np.linalg.eigh(0.5 * (curvature + curvature.T))
    root = directions / np.sqrt(np.maximum(values, _LEAST_CURVATURE))
    if not count:
        return ParameterDraws(np.zeros((0, size)), root)
    steps = _student_points(num_proposals, size, seed)
    low, high = np.transpose(posterior.bounds)
    proposals = np.clip(mode + steps @ root.T, low, high)
    losses = np.array([posterior.loss(proposal, has_gradient=False)[0] for proposal in proposals])
    logs = 0.5 * (DEGREES + size) * np.log1p(np.square(steps).sum(1) / DEGREES) - losses
    if not np.isfinite(logs).any():
        return ParameterDraws(np.tile(mode, (count, 1)), root)
    weights = np.exp(logs - logs[np.isfinite(logs)].max(), where=np.isfinite(logs), out=np.zeros_like(logs))
    weights = np.minimum(weights / weights.sum(), num_proposals**-0.5)
    shares = np.cumsum(weights / weights.sum())
    places = np.searchsorted(shares, (np.arange(count) + 0.5) / count).clip(0, num_proposals - 1)
    return ParameterDraws(proposals[places], root)


def _slope_change(posterior: LogPosterior, mode: Floats, start: Floats, step: Floats) -> Floats:
    """By how much a step from the mode changes the gradient; a step back where there is no density."""
    value, slope = posterior.loss(mode + step)
    return slope - start if np.isfinite(value) else start - posterior.loss(mode - step)[1]


def _student_points(count: int, size: int, seed: int) -> Floats:
    """Quasi-random points (count, p) of Student's t distribution, in random order.

    In their own order every eighth point of Sobol' lies in one eighth of the cube, and resampling takes every so many.
    """
    points = scipy.stats.qmc.Sobol(size + 1, seed=seed).random_base2(math.ceil(math.log2(count)))[:count]
    levels = np.random.default_rng(seed).permutation(points).clip(_EDGE, 1.0 - _EDGE)
    squares = 2.0 * scipy.special.gammaincinv(0.5 * DEGREES, levels[:, size:])
    found: Floats = scipy.special.ndtri(levels[:, :size]) * np.sqrt(DEGREES / squares)
    return found
