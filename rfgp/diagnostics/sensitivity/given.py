"""Distributions of inputs as users have them: of this package, of others by their quantiles, or in words."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor

from ..._support import checks
from .inputs import Empirical, InputDistribution, Normal, Uniform, default_names, normal_nodes
from .quantile_functions import QuantileFunction, quantile_function

Inputs = Mapping[str, Any] | Sequence[Any]
"""Distributions by the names of the inputs, or in their order, with the names x1, x2, ..."""
_WORDS = re.compile(r"\s*(\w+)\s*\((.*)\)\s*")
_ADVICE = (
    'such as Uniform(0, 1), scipy.stats.norm(10, 2), "normal(10, 2)" or {"distribution": "normal", "mean": 10, "sd": 2}'
)


class Quantiles(Empirical):
    r"""A distribution by its quantile function Q, with moments and a characteristic function by quadrature.

    .. math:: E\, g(X) = \int g\big(Q(\Phi(z))\big)\, \varphi(z)\, dz

    The quadrature of 512 nodes holds the variance of long tails. Where quantiles are repeated, the distribution is
    discrete, and 512 quantiles of equal weights stand for it.

    :param quantile: from levels in (0, 1), an array (n,), to values (n,).
    :param name: how it is printed.
    :raises ValueError: for quantiles that are not finite.

    >>> round(Quantiles(lambda level: 2.0 * level, "twice uniform").mean, 12)
    1.0
    """

    def __init__(self, quantile: QuantileFunction, name: str) -> None:
        self._quantile, self._name = quantile, name
        z, weights = normal_nodes()
        middles = np.asarray(quantile((np.arange(len(z)) + 0.5) / len(z)))
        if not np.isfinite(middles).all():
            bad = middles[~np.isfinite(middles)][0]
            raise ValueError(f"expected finite quantiles of {name}, got {bad:g}; check its parameters")
        if len(np.unique(middles)) < len(middles):
            super().__init__(middles)
        else:
            super().__init__(quantile(torch.special.ndtr(z).numpy()))
            self._set_weights(weights)

    def quantile(self, level: Tensor) -> Tensor:
        inside = level.double().cpu().clamp(1e-9, 1.0 - 1e-9).numpy()
        return torch.as_tensor(np.asarray(self._quantile(inside.ravel())).reshape(inside.shape)).to(level)

    def __repr__(self) -> str:
        return self._name


def _triangular(low: float, mode: float, high: float) -> InputDistribution:
    frozen = scipy.stats.triang((mode - low) / (high - low), low, high - low)
    return Quantiles(frozen.ppf, f"Triangular({low:g}, {mode:g}, {high:g})")


def _lognormal(log_mean: float, log_sd: float) -> InputDistribution:
    frozen = scipy.stats.lognorm(checks.positive("log_sd", log_sd), scale=np.exp(log_mean))
    return Quantiles(frozen.ppf, f"LogNormal({log_mean:g}, {log_sd:g})")


def _truncated_normal(mean: float, sd: float, low: float, high: float) -> InputDistribution:
    std = checks.positive("sd", sd)
    frozen = scipy.stats.truncnorm((low - mean) / std, (high - mean) / std, mean, std)
    return Quantiles(frozen.ppf, f"TruncNormal({mean:g}, {sd:g}, {low:g}, {high:g})")


def _gumbel(mode: float, scale: float) -> InputDistribution:
    return Quantiles(scipy.stats.gumbel_r(mode, scale).ppf, f"Gumbel({mode:g}, {scale:g})")


def _weibull(shape: float, scale: float) -> InputDistribution:
    return Quantiles(scipy.stats.weibull_min(shape, scale=scale).ppf, f"Weibull({shape:g}, {scale:g})")


def _gamma(shape: float, scale: float) -> InputDistribution:
    return Quantiles(scipy.stats.gamma(shape, scale=scale).ppf, f"Gamma({shape:g}, {scale:g})")


def _beta(a: float, b: float) -> InputDistribution:
    return Quantiles(scipy.stats.beta(a, b).ppf, f"Beta({a:g}, {b:g})")


def _log_uniform(low: float, high: float) -> InputDistribution:
    return Quantiles(scipy.stats.loguniform(low, high).ppf, f"LogUniform({low:g}, {high:g})")


_NAMED: dict[str, tuple[tuple[str, ...], Callable[..., InputDistribution]]] = {
    "uniform": (("low", "high"), Uniform),
    "normal": (("mean", "sd"), Normal),
    "lognormal": (("log_mean", "log_sd"), _lognormal),
    "triangular": (("low", "mode", "high"), _triangular),
    "truncnormal": (("mean", "sd", "low", "high"), _truncated_normal),
    "gumbel": (("mode", "scale"), _gumbel),
    "weibull": (("shape", "scale"), _weibull),
    "gamma": (("shape", "scale"), _gamma),
    "beta": (("a", "b"), _beta),
    "loguniform": (("low", "high"), _log_uniform),
}


def distribution(value: Any, name: str = "the input") -> InputDistribution:
    """The distribution of an input, from what describes it.

    In words, it is "uniform(low, high)", "normal(mean, sd)", "lognormal(log_mean, log_sd)", "triangular(low, mode,
    high)", "truncnormal(mean, sd, low, high)", "gumbel(mode, scale)", "weibull(shape, scale)", "gamma(shape, scale)",
    "beta(a, b)" or "loguniform(low, high)", also as a mapping such as
    ``{"distribution": "normal", "mean": 10, "sd": 2}``.

    :param value: an :class:`InputDistribution`, a distribution of scipy.stats, torch.distributions or OpenTURNS, any
        object with the quantile function of one of these, a text or a mapping.
    :param name: the name of the input, for errors.
    :raises ValueError: for anything else, or wrong parameters.

    >>> distribution("normal(10, 2)"), distribution({"distribution": "uniform", "low": 0, "high": 1})
    (Normal(10, 2), Uniform(0, 1))
    """
    if isinstance(value, InputDistribution):
        return value
    if isinstance(value, str):
        found = _WORDS.fullmatch(value)
        if found is None:
            raise ValueError(f"expected a distribution for {name}, got {value!r}; {_ADVICE}")
        return _named(found[1], [part.strip() for part in found[2].split(",")], name)
    if isinstance(value, Mapping):
        given = dict(value)
        kind = str(given.pop("distribution", ""))
        wanted = _NAMED[_kind(kind, name)][0]
        if set(given) != set(wanted):
            raise ValueError(
                f"expected {', '.join(wanted)} of the {kind} distribution of {name}, got {', '.join(given) or 'none'}; "
                "name each once"
            )
        return _named(kind, [given[parameter] for parameter in wanted], name)
    quantile = quantile_function(value, name)
    if quantile is not None:
        return Quantiles(quantile, _described(value))
    raise ValueError(f"expected a distribution for {name}, got {type(value).__name__}; {_ADVICE}")


def checked_inputs(inputs: Inputs) -> dict[str, InputDistribution]:
    """The distributions by name, in the order of the columns."""
    advice = 'such as {"length": Uniform(0, 1), "load": Normal(5, 0.1)}'
    checks.instance("inputs", inputs, (Mapping, Sequence), "a mapping or sequence of distributions", advice)
    if isinstance(inputs, str):
        raise ValueError(f"expected a mapping or sequence of distributions for inputs, got {inputs!r}; {advice}")
    if isinstance(inputs, Mapping):
        by_name = {str(name): value for name, value in inputs.items()}
    else:
        by_name = dict(zip(default_names(len(inputs)), inputs, strict=True))
    if not by_name:
        raise ValueError(f"expected at least one input, got none; {advice}")
    return {name: distribution(value, f"the input {name}") for name, value in by_name.items()}


def _kind(word: str, name: str) -> str:
    kind = word.lower()
    if kind not in _NAMED:
        close = difflib.get_close_matches(kind, _NAMED, n=1)
        advice = f"did you mean {close[0]!r}?" if close else "others are passed as distributions of scipy.stats"
        raise ValueError(f"expected one of {', '.join(_NAMED)} for {name}, got {word!r}; {advice}")
    return kind


def _named(word: str, values: Sequence[Any], name: str) -> InputDistribution:
    kind = _kind(word, name)
    wanted, make = _NAMED[kind]
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != len(wanted):
        given = ", ".join(map(str, values))
        raise ValueError(f"expected {kind}({', '.join(wanted)}) for {name}, got {kind}({given}); pass numbers")
    return make(*numbers)


def _described(value: Any) -> str:
    """How a distribution object is printed: as it prints itself, or by the name of its class."""
    if hasattr(value, "args") and hasattr(value, "dist"):  # a frozen one of scipy.stats
        parts = [f"{part:g}" for part in value.args] + [f"{key}={part:g}" for key, part in value.kwds.items()]
        return f"{value.dist.name}({', '.join(parts)})"
    printed = str(value)
    return type(value).__name__ if " object at 0x" in printed else printed
