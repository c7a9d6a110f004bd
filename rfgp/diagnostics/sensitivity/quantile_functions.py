"""Quantile functions of distribution objects of any package, by the methods that these objects have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
import torch
from numpy.typing import NDArray

Values = NDArray[np.float64]
QuantileFunction = Callable[[Values], Values]
"""From levels (n,) in (0, 1) to values (n,)."""
_QUANTILES = ("ppf", "icdf", "computeQuantile")
"""The names of quantile functions in scipy.stats, its newer distributions and torch.distributions, and OpenTURNS."""
_END, _KNOTS = 6.0, 257
"""Tables of quantiles reach from level 1e-9 to 1 - 1e-9, the quantiles of a standard normal variable at -6 and 6."""
_LARGEST = 700.0
"""The hyperbolic sine of this is near the largest number in float64."""
_REACH, _NODES, _COARSE, _FINE, _TOLERANCE = 100.0, 8, 8192, 2048, 1e-3
"""A density is summed over parts of [-100, 100] with 8 nodes each, then over finer ones where its mass is."""
_REFUSALS = (TypeError, ValueError, RuntimeError, AttributeError, IndexError)


def quantile_function(value: Any, name: str = "the input") -> QuantileFunction | None:
    r"""The quantile function of a distribution, or None where ``value`` has no method that gives one.

    It is the method ``ppf``, ``icdf`` or ``computeQuantile``. Where there is none, a table of Q(Phi(z)) is made from
    the distribution function (``cdf``, ``integrate_box_1d``), or from the density (``log_prob``).

    :param value: a distribution of one continuous number, or a discrete one that has quantiles.
    :param name: the name of the input, for errors.
    :raises ValueError: for distributions of several numbers, discrete ones without quantiles, and densities that
        quadrature cannot hold.

    >>> quantile = quantile_function(torch.distributions.Gamma(2.0, 1.0))
    >>> quantile(np.array([0.5])).round(6).tolist()
    [1.678347]
    """
    if isinstance(value, type):
        raise ValueError(
            f"expected a distribution for {name}, got the class {value.__name__}; make one by its parameters"
        )
    if shape := tuple(getattr(value, "event_shape", ())):
        raise ValueError(
            f"expected a distribution of one number for {name}, got {type(value).__name__}, whose values have shape "
            f"{shape}; pass a distribution for each input"
        )
    for method in _QUANTILES:
        found = _of_one_number(value, method, name)
        if found is not None:
            return found
    if getattr(getattr(value, "support", None), "is_discrete", False):
        raise ValueError(
            f"expected a distribution with quantiles for {name}, got the discrete {type(value).__name__}, which has "
            "none in torch.distributions; pass that of scipy.stats"
        )
    below = _of_one_number(value, "cdf", name) or _of_boxes(value, name)
    if below is not None:
        return _inverted(below, *_support(value))
    density = _of_one_number(value, "log_prob", name)
    return None if density is None else _integrated(density, value, name)


def _of_one_number(value: Any, method: str, name: str) -> QuantileFunction | None:
    """A method of a distribution as a function of arrays (n,), or None where it is missing or not implemented."""
    call = getattr(value, method, None)
    if not callable(call):
        return None
    is_torch = isinstance(value, torch.distributions.Distribution)

    def function(x: Values) -> Values:
        result = call(torch.as_tensor(x) if is_torch else x)
        return np.asarray(result.detach().cpu() if is_torch else result, dtype=np.float64).reshape(-1)

    return _tried(function, value, method, name)


def _of_boxes(value: Any, name: str) -> QuantileFunction | None:
    """The distribution function of a density estimate of scipy.stats, whose method takes two numbers."""
    call = getattr(value, "integrate_box_1d", None)
    if not callable(call):
        return None
    return _tried(lambda x: np.array([call(-np.inf, end) for end in x]), value, "integrate_box_1d", name)


def _tried(function: QuantileFunction, value: Any, method: str, name: str) -> QuantileFunction | None:
    """The function itself if it has one value for one number, None where it is not implemented, or a ValueError."""
    low, high = _support(value)
    inside = 0.5 if low < 0.5 < high else 0.5 * (low + high) if np.isfinite(low + high) else low + 1.0
    try:
        count = len(function(np.array([inside])))
    except NotImplementedError:
        return None
    except _REFUSALS as error:
        raise ValueError(
            f"expected a distribution of one number for {name}, got {type(value).__name__}, whose {method} raises "
            f"{type(error).__name__}: {error}; give it numbers as parameters"
        ) from error
    if count != 1:
        raise ValueError(
            f"expected a distribution of one number for {name}, got {type(value).__name__}, whose {method} has {count} "
            "values for one; pass a distribution for each input"
        )
    return function


def _support(value: Any) -> tuple[float, float]:
    """The ends of the values of a distribution of torch.distributions; of others the real line."""
    support = getattr(value, "support", None)
    ends = (getattr(support, "lower_bound", -np.inf), getattr(support, "upper_bound", np.inf))
    low, high = (float(end) for end in ends)
    return low, high


def _inverted(below: QuantileFunction, low: float, high: float) -> QuantileFunction:
    """The quantile function, by the roots of a distribution function at the knots of a table."""
    from scipy.optimize import elementwise

    z = np.linspace(-_END, _END, _KNOTS)
    inside = np.nextafter(np.array([low, high]), np.array([np.inf, -np.inf]))
    start, end = np.clip(np.arcsinh(inside), -_LARGEST, _LARGEST)

    def excess(t: Values, level: Values) -> Values:
        with np.errstate(over="ignore"):
            return below(np.clip(np.sinh(t), *inside)) - level

    found = elementwise.find_root(excess, (np.full_like(z, start), np.full_like(z, end)), args=(scipy.special.ndtr(z),))
    return _table(z, np.sinh(found.x))


def _integrated(log_density: QuantileFunction, value: Any, name: str) -> QuantileFunction:
    """The quantile function, by the quadrature of a density in parts, first of all values, then of those with mass."""
    low, high = _support(value)
    mean, scale = float(value.mean), float(value.stddev)
    if not np.isfinite([mean, scale]).all():
        mean, scale = 0.0, 1.0

    def masses(edges: Values) -> Values:
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        half = 0.5 * np.diff(edges)[:, None]
        x, log_slope = _spread((edges[:-1, None] + half * (nodes + 1.0)).ravel(), low, high, mean, scale)
        with np.errstate(invalid="ignore"):
            logs = log_density(x) + log_slope
        return np.exp(np.where(np.isfinite(logs), logs, -np.inf)).reshape(-1, _NODES) @ weights * half[:, 0]

    edges = np.linspace(-_REACH, _REACH, _COARSE + 1)
    coarse = masses(edges)
    total = float(coarse.sum())
    if not abs(total - 1.0) < _TOLERANCE:
        raise ValueError(
            f"expected a density of total one for {name}, got {type(value).__name__}, whose sum over {_COARSE:,} parts "
            f"is {total:.9g}; pass the distribution of scipy.stats"
        )
    is_tail = np.minimum(coarse.cumsum(), coarse[::-1].cumsum()[::-1]) < scipy.special.ndtr(-_END)
    first, last = np.flatnonzero(~is_tail)[[0, -1]]
    edges = np.linspace(edges[first], edges[last + 1], _FINE + 1)
    fine = masses(edges)
    below = coarse[:first].sum() + fine.cumsum()[:-1]
    above = coarse[last + 1 :].sum() + fine[::-1].cumsum()[::-1][1:]
    total = float(below[-1] + above[-1])
    z = np.where(below < 0.5 * total, scipy.special.ndtri(below / total), -scipy.special.ndtri(above / total))
    kept = np.flatnonzero(np.isfinite(z))
    kept = kept[np.diff(z[kept], prepend=-np.inf) > 0]
    return _table(z[kept], _spread(edges[1:-1], low, high, mean, scale)[0][kept])


def _spread(t: Values, low: float, high: float, mean: float, scale: float) -> tuple[Values, Values]:
    """Values that a real variable t spreads over the support, and the logarithms of their slopes."""
    if np.isfinite(low + high):
        log_slope = np.log(high - low) - np.logaddexp(0.0, t) - np.logaddexp(0.0, -t)
        return low + (high - low) * scipy.special.expit(t), log_slope
    if np.isfinite(low):
        return low + (mean - low) * np.exp(t), np.log(mean - low) + t
    return mean + scale * np.sinh(t), np.log(scale) + np.log(np.cosh(t))


def _table(z: Values, x: Values) -> QuantileFunction:
    """The monotone cubic interpolation of values at quantiles of a standard normal variable."""
    curve = scipy.interpolate.PchipInterpolator(z, x)
    return lambda level: curve(np.clip(scipy.special.ndtri(level), z[0], z[-1]))
