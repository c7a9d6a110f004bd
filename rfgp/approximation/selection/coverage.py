"""What a divergence from the exact posterior means for its intervals, in plain language."""

from __future__ import annotations

import math

import scipy

from ..._support import checks

CLOSE = 0.1
"""The divergence KL(exact, approximate) per point up to which a posterior counts as close to the exact one."""
_READINGS = (
    (0.01, "as good as exact"),
    (CLOSE, "close to exact"),
    (0.5, "usable means, doubtful error bars"),
    (2.0, "poor error bars"),
    (math.inf, "error bars that say nothing"),
)


def coverage_at_least(kl_per_point: float, level: float = 0.95) -> float:
    r"""The coverage of the function that intervals of a posterior have at least, by KL(exact, approximate) per point.

    .. math:: 2 \Phi(u^{-1/2} z) - 1, \qquad u - 1 - \log u = 2 \kappa, \quad u \ge 1

    It holds for data from the model, on average over the targets.

    :param kl_per_point: the mean :math:`\kappa` over points of KL(exact, approximate) of the function's marginals.
    :param level: the nominal coverage of the intervals.
    :raises ValueError: for a negative divergence, or a level that is no probability.

    >>> round(coverage_at_least(0.1), 2)
    0.86
    """
    divergence = _checked(kl_per_point)
    nominal = checks.share("level", level)
    if math.isinf(divergence):
        return 0.0
    if divergence == 0.0:
        return nominal
    ratio = scipy.optimize.brentq(lambda u: u - 1.0 - math.log(u) - 2.0 * divergence, 1.0, 4.0 + 4.0 * divergence)
    quantile = scipy.special.ndtri((1.0 - nominal) / 2.0)
    return float(1.0 - 2.0 * scipy.special.ndtr(quantile / math.sqrt(ratio)))


def kl_reading(kl_per_point: float) -> str:
    """A divergence per point from the exact posterior in plain language, with the coverage to be expected.

    :param kl_per_point: as for :func:`coverage_at_least`.
    :raises ValueError: for a negative divergence.

    >>> kl_reading(0.7)
    'KL 0.7 per point: poor error bars; 95% intervals of the function cover at least 69% of it'
    """
    divergence = _checked(kl_per_point)
    words = next(words for limit, words in _READINGS if divergence <= limit)
    covered = math.floor(100.0 * coverage_at_least(divergence))
    return f"KL {divergence:.2g} per point: {words}; 95% intervals of the function cover at least {covered}% of it"


def _checked(kl_per_point: float) -> float:
    divergence = checks.number(kl_per_point)
    if not divergence >= 0.0:
        raise ValueError(
            f"expected a divergence per point of at least 0, got {kl_per_point!r}; divide kl_to_exact by the points"
        )
    return divergence
