"""A number that depends on the unknown function, with what the posterior of the function says about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..._support import checks, optional

_MUCH = 0.1


@dataclass(frozen=True)
class Estimate:
    """A quantity of a function that is known up to its posterior.

    :param value: that of the posterior mean, of any shape.
    :param samples: those of functions drawn from the posterior, (S, ...).
    :param spread: for a share of variance, those of the differences between functions drawn and the posterior mean:
        what the share of the posterior mean may be where that of the function is zero.

    >>> import torch
    >>> from rfgp.diagnostics.sensitivity import Estimate
    >>> estimate = Estimate(torch.tensor(1.0), torch.tensor([0.0, 1.0, 2.0]))
    >>> estimate.mean, estimate.std
    (tensor(1.), tensor(1.))
    """

    value: Tensor
    samples: Tensor
    spread: Tensor | None = None

    @property
    def mean(self) -> Tensor:
        """The posterior mean, by the functions drawn."""
        return self.samples.mean(0)

    @property
    def std(self) -> Tensor:
        """The posterior standard deviation, by the functions drawn."""
        return self.samples.std(0)

    def quantile(self, level: float) -> Tensor:
        """The posterior quantile at a level in (0, 1), by the functions drawn."""
        return self.samples.quantile(checks.share("level", level), dim=0)

    def interval(self, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """The interval between quantiles that contains the quantity with a probability of ``level``.

        A share of variance is between zero and one, and begins at zero where the mean has no more of it than the
        functions drawn differ by.
        """
        low, high = self.quantile(0.5 - 0.5 * checks.share("level", level)), self.quantile(0.5 + 0.5 * level)
        if self.spread is None:
            return low, high
        may_be_zero = self.value <= self.spread.quantile(level, dim=0)
        return torch.where(may_be_zero, 0.0, low.clamp(0.0, 1.0)), high.clamp(0.0, 1.0)

    def __getitem__(self, index: int) -> Estimate:
        """The estimate of one of several quantities."""
        spread = None if self.spread is None else self.spread[:, index]
        return Estimate(self.value[index], self.samples[:, index], spread)


def table(names: Sequence[str], columns: Mapping[str, Estimate], outside: Tensor, level: float) -> str:
    """Estimates (d,) or (T, d) with intervals as plain text, the input with the largest one of the last column first.

    Below these it names inputs of which much is outside the training inputs.

    :param outside: the shares of every input, and of its variance, outside the training inputs, (2, d).
    """
    several = [estimate.value.dim() == 2 for estimate in columns.values()][-1]
    lines, width = [], max(len("input"), *map(len, names))
    for output in range(len(list(columns.values())[-1].value)) if several else [None]:
        shown = [estimate if output is None else estimate[output] for estimate in columns.values()]
        lines += [] if output is None else [f"output {output + 1}"]
        lines.append(f"{'input':<{width}}  {'  '.join(f'{name:<22}' for name in columns)}".rstrip())
        for k in shown[-1].value.argsort(descending=True).tolist():
            cells = [f"{_with_interval(estimate[k], level):<22}" for estimate in shown]
            lines.append(f"{names[k]:<{width}}  {'  '.join(cells)}".rstrip())
    lines += [
        f"{share:.1%} of {name}, with {of_variance:.0%} of its variance, is outside the training inputs: there the "
        "function is extrapolated, and intervals may be too narrow."
        for name, share, of_variance in zip(names, *outside.tolist(), strict=True)
        if of_variance >= _MUCH
    ]
    return "\n".join(lines)


def frame(names: Sequence[str], columns: Mapping[str, Estimate], level: float) -> Any:
    """Estimates (d,) or (T, d) with standard deviations and intervals as a pandas DataFrame.

    It has a row for every input (and output).
    """
    optional.require("pandas", "study", "data frames")
    import pandas as pd

    values = next(iter(columns.values())).value
    outputs, found = values.shape[:-1].numel(), dict[str, Any]()
    if values.dim() == 2:
        found["output"] = [t + 1 for t in range(outputs) for _ in names]
    found["input"] = list(names) * outputs
    for name, estimate in columns.items():
        low, high = estimate.interval(level)
        parts = {name: estimate.value, f"{name}_std": estimate.std, f"{name}_low": low, f"{name}_high": high}
        found |= {key: value.flatten().numpy() for key, value in parts.items()}
    return pd.DataFrame(found)


def _with_interval(estimate: Estimate, level: float) -> str:
    low, high = estimate.interval(level)
    return f"{float(estimate.value):.3f} ({float(low):.3f}, {float(high):.3f})"


def shares(parts: Tensor, whole: Tensor) -> Tensor:
    """The ratios of parts (..., d) to a whole (...), zero where that is zero: no input of a constant matters."""
    total = whole.unsqueeze(-1)
    return torch.where(total > 0.0, parts / total, 0.0)
