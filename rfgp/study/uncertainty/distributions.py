"""Distributions of inputs as people write them: objects of SciPy, PyTorch or rfgp, words, or records."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..._support import checks
from ...diagnostics.sensitivity import InputDistribution, Normal, Uniform

PARAMETERS = {
    "uniform": ("low", "high"),
    "normal": ("mean", "sd"),
    "lognormal": ("mean_log", "sd_log"),
    "triangular": ("low", "mode", "high"),
    "exponential": ("mean",),
}
"""The distributions that have names, with their parameters."""

_ADVICE = 'such as "uniform(0, 1)", "normal(10, 2)", or a frozen distribution of scipy.stats'


@dataclass(frozen=True)
class Quantiles:
    """A distribution by its quantile function and by words; ``scaled`` moves it to the range of the runs."""

    words: str
    quantile: Callable[[Tensor], Tensor]

    def scaled(self, low: float, width: float) -> Quantiles:
        """The distribution of (x - low) / width."""
        return Quantiles(self.words, lambda level: (self.quantile(level) - low) / width)


def by_name(inputs: Any, names: Sequence[str], x: Tensor) -> dict[str, Quantiles]:
    """The distribution of every input; uniform over the range of the runs (n, d) where none is given."""
    given: Mapping[Any, Any]
    if inputs is None:
        given = {}
    elif isinstance(inputs, Mapping):
        given = inputs
    elif isinstance(inputs, Sequence) and not isinstance(inputs, str):
        if len(inputs) != len(names):
            raise ValueError(f"expected {len(names)} distributions, got {len(inputs)}; or give them by name")
        given = dict(zip(names, inputs, strict=True))
    else:
        raise ValueError(f"expected distributions by name or in order for inputs, got {inputs!r}; {_ADVICE}")
    unknown = [key for key in given if key not in names and not (isinstance(key, int) and 0 <= key < len(names))]
    if unknown:
        raise ValueError(f"expected names among {', '.join(names)}, got {unknown[0]!r}; describe inputs of the runs")
    result = {}
    for k, name in enumerate(names):
        value = given.get(name, given.get(k))
        if value is None:
            low, high = x[:, k].min().item(), x[:, k].max().item()
            result[name] = Quantiles(
                f"uniform from {low:.6g} to {high:.6g}, the range of the runs", Uniform(low, high).quantile
            )
        else:
            result[name] = understood(name, value)
    return result


def understood(name: str, value: Any) -> Quantiles:
    """The distribution that an object, a string or a record means.

    :raises ValueError: for anything else, unknown names, or parameters that are none.
    """
    if isinstance(value, InputDistribution):
        return Quantiles(repr(value), value.quantile)
    if isinstance(value, str):
        return _spoken(name, value)
    if isinstance(value, Mapping):
        return _record(name, value)
    if isinstance(value, torch.distributions.Distribution):
        return _of_torch(name, value)
    if callable(getattr(value, "ppf", None)):
        return _of_scipy(name, value)
    raise ValueError(f"expected a distribution for {name}, got {value!r}; {_ADVICE}")


def _of_torch(name: str, value: torch.distributions.Distribution) -> Quantiles:
    if value.batch_shape.numel() != 1 or value.event_shape.numel() != 1:
        raise ValueError(f"expected a distribution of one number for {name}, got {value}; describe each input")
    try:
        value.icdf(torch.tensor([0.5]))
    except NotImplementedError:
        raise ValueError(
            f"expected a distribution with quantiles for {name}, got {value}, which has none; use scipy.stats"
        ) from None
    words = str(value)
    return Quantiles(words, lambda level: value.icdf(level).to(level.dtype).reshape(level.shape))


def _of_scipy(name: str, value: Any) -> Quantiles:
    parameters = [f"{number:g}" for number in getattr(value, "args", ())]
    parameters += [f"{key}={number:g}" for key, number in getattr(value, "kwds", {}).items()]
    kind = getattr(getattr(value, "dist", value), "name", type(value).__name__)
    if not torch.isfinite(torch.as_tensor(value.ppf(0.5), dtype=torch.float64)).all():
        raise ValueError(f"expected a distribution with parameters in their range for {name}, got {kind}; check them")

    def quantile(level: Tensor) -> Tensor:
        return torch.as_tensor(value.ppf(level.numpy()), dtype=torch.float64)

    return Quantiles(f"{kind}({', '.join(parameters)})", quantile)


def _spoken(name: str, text: str) -> Quantiles:
    match = re.fullmatch(r"\s*(\w+)\s*\(([^()]*)\)\s*", text)
    if match is None:
        raise ValueError(f"expected a distribution for {name}, got {text!r}; {_ADVICE}")
    numbers = [part for part in match[2].split(",") if part.strip()]
    expected = PARAMETERS.get(match[1].lower(), ())
    return _named(name, match[1].lower(), dict(zip(expected, numbers)), text, len(numbers))


def _record(name: str, record: Mapping[str, Any]) -> Quantiles:
    if "distribution" not in record:
        raise ValueError(f'expected a record with "distribution" for {name}, got {dict(record)}; {_ADVICE}')
    rest = {key: value for key, value in record.items() if key != "distribution"}
    return _named(name, str(record["distribution"]).lower(), rest, str(dict(record)), len(rest))


def _named(name: str, kind: str, given: Mapping[str, Any], text: str, count: int) -> Quantiles:
    if kind not in PARAMETERS:
        raise ValueError(f"expected one of {', '.join(PARAMETERS)} for {name}, got {text}; or one of scipy.stats")
    wanted = PARAMETERS[kind]
    if set(given) != set(wanted) or count != len(wanted):
        raise ValueError(f"expected {kind}({', '.join(wanted)}) for {name}, got {text}; name {len(wanted)} numbers")
    try:
        numbers = [checks.number(float(given[key])) for key in wanted]
    except (TypeError, ValueError):
        raise ValueError(f"expected numbers in {kind} for {name}, got {text}; {_ADVICE}") from None
    words = f"{kind}({', '.join(f'{number:g}' for number in numbers)})"
    if kind == "uniform":
        return Quantiles(words, Uniform(*numbers).quantile)
    if kind == "normal":
        return Quantiles(words, Normal(*numbers).quantile)
    return Quantiles(words, _of_scipy(name, _of_stats(kind, numbers)).quantile)


def _of_stats(kind: str, numbers: list[float]) -> Any:
    from scipy import stats

    if kind == "lognormal":
        return stats.lognorm(numbers[1], scale=torch.tensor(numbers[0]).exp().item())
    if kind == "exponential":
        return stats.expon(scale=numbers[0])
    low, mode, high = numbers
    if not low <= mode <= high or low == high:
        raise ValueError(f"expected low <= mode <= high, got {low:g}, {mode:g} and {high:g}; put them in order")
    return stats.triang((mode - low) / (high - low), loc=low, scale=high - low)
