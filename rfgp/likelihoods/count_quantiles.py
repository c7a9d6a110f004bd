"""Quantiles of counts whose log rate is normal."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.hermite.hermgauss(24)
_NODES, _WEIGHTS = np.sqrt(2.0) * _NODES, _WEIGHTS / np.sqrt(np.pi)
_TIMES = np.arange(-4.5, 4.5625, 0.125)
_STEPS, _SPACINGS = np.sinh(_TIMES), np.cosh(_TIMES)
"""Standard deviations from the mode, by which a density that is as wide as one is summed; its tails may be long."""
_NARROW = 0.5
"""The spread of the function, in those of the counts, up to which the function is averaged over."""


def count_probabilities(counts: Floats, mean: Floats, variance: Floats, dispersion: float) -> Floats:
    r"""The probabilities (N,) of at most q = 0, 1, ... events (N,), whose log rates f are N(m, v), (N,) each.

    .. math:: P(y \le q) = E_f F(q \mid f) = E_b\, \Phi\Big(\frac{b - m}{\sqrt v}\Big), \qquad
        p(b) \propto \frac{e^{(q + 1) b}}{(1 + \alpha e^b)^{q + 1 + 1/\alpha}}

    Here F is the distribution function of counts with the mean exp(f), which falls with f as that of b. What is
    averaged over is the narrower of the two, so that the other one is smooth: f by Gauss-Hermite points, b by the
    trapezoidal rule in its inverse hyperbolic sine.

    :param dispersion: :math:`\alpha` of negative binomial counts; zero for Poisson ones, with
        :math:`p(b) \propto \exp((q + 1) b - e^b)`.
    """
    spread, width = np.sqrt(variance), np.sqrt(1.0 / (counts + 1.0) + dispersion)
    is_narrow = spread <= _NARROW * width
    found = np.empty(len(counts))
    if is_narrow.any():
        f = mean[is_narrow, None] + spread[is_narrow, None] * _NODES
        found[is_narrow] = _distribution(counts[is_narrow, None], np.exp(f), dispersion) @ _WEIGHTS
    if not is_narrow.all():
        rest = ~is_narrow
        successes, steps = counts[rest, None] + 1.0, width[rest, None] * _STEPS
        log_density = successes * (steps - np.expm1(steps))
        if dispersion > 0.0:
            share = dispersion * successes / (1.0 + dispersion * successes)
            log_density = successes * steps - (successes + 1.0 / dispersion) * np.log1p(share * np.expm1(steps))
        density = _SPACINGS * np.exp(log_density)
        below = scipy.special.ndtr((np.log(successes) + steps - mean[rest, None]) / spread[rest, None])
        found[rest] = (density * below).sum(-1) / density.sum(-1)
    return found


def count_quantiles(level: float, mean: Floats, variance: Floats, dispersion: float) -> Floats:
    """The smallest counts (N,) that are not exceeded with a probability of ``level`` at least, by bisection.

    Other arguments are those of :func:`count_probabilities`.
    """
    below = np.full(len(mean), -1.0)
    above = np.ceil(np.exp(mean + max(scipy.special.ndtri(level), 0.0) * np.sqrt(variance)))

    def reaches(counts: Floats, rows: Any) -> Any:
        return count_probabilities(counts, mean[rows], variance[rows], dispersion) >= level

    rows = np.flatnonzero(~reaches(above, slice(None)) & np.isfinite(above))
    while len(rows):
        below[rows], above[rows] = above[rows], 2.0 * above[rows] + 1.0
        rows = rows[~reaches(above[rows], rows) & np.isfinite(above[rows])]
    rows = np.flatnonzero(above - below > 1.0)
    while len(rows):
        middle = np.floor(0.5 * (below[rows] + above[rows]))
        has_reached = reaches(middle, rows)
        above[rows[has_reached]], below[rows[~has_reached]] = middle[has_reached], middle[~has_reached]
        rows = rows[above[rows] - below[rows] > np.maximum(1.0, 1e-15 * above[rows])]
    return above


def _distribution(counts: Floats, mean: Floats, dispersion: float) -> Floats:
    """The probabilities of at most so many events, given their means."""
    if dispersion == 0.0:
        found: Floats = scipy.special.gammaincc(counts + 1.0, mean)
    else:
        found = scipy.special.betainc(1.0 / dispersion, counts + 1.0, 1.0 / (1.0 + dispersion * mean))
    return found
