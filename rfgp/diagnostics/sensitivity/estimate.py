"""A number that depends on the unknown function, with what the posterior of the function says about it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..._support import checks


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


def shares(parts: Tensor, whole: Tensor) -> Tensor:
    """The ratios of parts (..., d) to a whole (...), zero where that is zero: no input of a constant matters."""
    total = whole.unsqueeze(-1)
    return torch.where(total > 0.0, parts / total, 0.0)
