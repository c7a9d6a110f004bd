"""Whether the residuals of complex targets are proper, as their likelihood supposes."""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from ..linalg.row_search import row_numbers

LEVEL = 1e-4
"""The probability of a warning where the residuals are proper."""
_MOST_ROWS = 1024
_MISFIT = 4.0


class SomeRows(NamedTuple):
    """Training rows on which residuals are looked at: x (n, d) and y (n,), evenly spaced over those that there are."""

    x: Tensor
    y: Tensor

    def and_some_of(self, x: Tensor, y: Tensor) -> SomeRows:
        """These and more rows, 1,024 in all at most."""
        observed = ~torch.isnan(y)
        x, y = x[observed], y[observed]
        count = min(len(y), _MOST_ROWS - len(self.y))
        index = torch.linspace(0, len(y) - 1, count, dtype=torch.float64, device=y.device).long()
        return SomeRows(torch.cat([self.x, x.detach()[index]]), torch.cat([self.y, y.detach()[index]]))

    def without(self, x: Tensor, y: Tensor) -> SomeRows:
        """These rows but for those that are among rows x (N, d) and y (N,), each as often as it is there."""
        numbers = row_numbers((x, y), self)
        return SomeRows(self.x[numbers < 0], self.y[numbers < 0])

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> SomeRows:
        """Some of the rows x (N, d) and y (N,)."""
        return cls(x.detach()[:0], y.detach()[:0]).and_some_of(x, y)


def warn_of_impropriety(residuals: Tensor, leverages: Tensor, noise: float, stacklevel: int) -> None:
    r"""Warn where complex residuals r (n,) of the posterior mean have a pseudo-variance that chance cannot explain.

    .. math:: T = (1 - \bar h) \frac{|\sum_i r_i^2|^2}{\sum_i |r_i|^4}

    For circular noise and many rows T has the exponential distribution with mean one. Without training (where residuals
    and noise variance differ by a factor of four) there is no warning. Leverages h: (n,).
    """
    free = 1.0 - leverages.clamp(0.0, 1.0)
    power = float(residuals.abs().square().sum())
    explained = noise * float(free.sum())
    if not explained / _MISFIT < power < explained * _MISFIT:
        return
    pseudo = float(residuals.square().sum().abs())
    statistic = float(free.mean()) * pseudo**2 / float(residuals.abs().pow(4).sum())
    if statistic > -math.log(LEVEL):
        warnings.warn(
            f"the residuals of complex targets are improper: |sum r^2| / sum |r|^2 is {pseudo / power:.2f} over "
            f"{len(residuals)} rows, where the circular noise of a ComplexGaussianLikelihood has 0; real and imaginary "
            "part of the noise have different variances or are correlated, and intervals for them are wrong; learn "
            "the circularity of the noise, by ComplexGaussianLikelihood(has_pseudo_noise=True)",
            stacklevel=stacklevel + 1,
        )
