"""Values that outputs of a simulator repeat, and the bounds that they show."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_FEWEST, _SHARE = 5, 0.02
_FAR = 10.0


@dataclass(frozen=True)
class Repeated:
    """The value of an output that most runs have, with the number of these runs."""

    value: float
    count: int


@dataclass(frozen=True)
class Limits:
    """The bounds of T outputs.

    An output has a bound at its smallest or largest value where at least 5 runs, and 2 % of them, have that value.

    :param low: lower bounds (T,), minus infinity where there is none.
    :param high: upper bounds (T,), infinity where there is none.
    :param repeated: the most frequent value of each output, None where no value is repeated as often.
    :param cuts_off: whether the functions of an output go on beyond its bounds, which cut them off; default: of none.
    """

    low: Tensor
    high: Tensor
    repeated: tuple[Repeated | None, ...]
    cuts_off: tuple[bool, ...] = ()

    @classmethod
    def of(cls, y: Tensor) -> Limits:
        """The bounds that outputs (N, T) show, NaN where a run has none."""
        low, high, repeated = [], [], []
        for column in y.mT:
            values, counts = column[~column.isnan()].unique(return_counts=True)
            values = values + 0.0  # no negative zero
            fewest = max(_FEWEST, math.ceil(_SHARE * int(counts.sum())))
            low.append(float(values[0]) if counts[0] >= fewest else -math.inf)
            high.append(float(values[-1]) if counts[-1] >= fewest else math.inf)
            most = int(counts.argmax())
            often = counts[most] >= fewest
            repeated.append(Repeated(float(values[most]), int(counts[most])) if often else None)
        return cls(torch.tensor(low, dtype=y.dtype), torch.tensor(high, dtype=y.dtype), tuple(repeated))

    def clipped(self, values: Tensor) -> Tensor:
        """Values (..., T) inside the bounds."""
        return values.clamp(self.low, self.high)

    def moments(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        r"""Means and variances (..., T) of normal variables after they are clipped.

        With standardized bounds a and b, and Z that is standard normal,

        .. math:: E = a \Phi(a) + b \Phi(-b) + \varphi(a) - \varphi(b), \qquad
            E Z^2 = a^2 \Phi(a) + b^2 \Phi(-b) + \Phi(b) - \Phi(a) + a \varphi(a) - b \varphi(b)
        """
        std = variance.sqrt()
        unit = std.clamp_min(torch.finfo(std.dtype).tiny)
        a, b = (((bound - mean) / unit).clamp(-_FAR, _FAR) for bound in (self.low, self.high))
        below, above = torch.special.ndtr(a), torch.special.ndtr(-b)
        at_a, at_b = (torch.exp(-0.5 * z.square()) / math.sqrt(2.0 * math.pi) for z in (a, b))
        first = a * below + b * above + at_a - at_b
        second = a.square() * below + b.square() * above + (1.0 - below - above) + a * at_a - b * at_b
        return self.clipped(mean + std * first), variance * (second - first.square()).clamp_min(0.0)
