"""The logit of values between bounds, and values without bounds as they are."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

_PAD, _EDGE = 0.01, 1e-9
"""The share of their distance by which bounds are moved apart, as values near them would outweigh all others, and that
by which values keep from them then."""


class Logit:
    r"""The logit of columns between bounds l and h, each of which is moved out by a hundredth of their distance.

    .. math:: u = \log \frac{y - l'}{h' - y}, \qquad l' = l - \frac{h - l}{100}, \quad h' = h + \frac{h - l}{100}

    Inverse values lie between l and h. Columns without bounds stay as they are.

    :param low: the lower bounds l, (T,), minus infinity for none.
    :param high: the upper bounds h.

    >>> logit = Logit(torch.zeros(1), torch.ones(1))
    >>> logit.forward(torch.tensor([0.5])), logit.inverse(torch.tensor([9.0]))
    (tensor([0.]), tensor([1.]))
    """

    def __init__(self, low: Tensor, high: Tensor) -> None:
        self.low, self.high = low, high

    @property
    def is_bounded(self) -> Tensor:
        """Which columns have bounds, (T,)."""
        return self.low.isfinite() & self.high.isfinite()

    @property
    def is_identity(self) -> bool:
        """Whether no column has bounds."""
        return not bool(self.is_bounded.any())

    def of(self, columns: Tensor) -> Self:
        """That of some of the columns."""
        return type(self)(self.low[columns], self.high[columns])

    def rescaled(self, center: Tensor, scale: Tensor) -> Self:
        """That of columns center + scale y, with the same values."""
        return type(self)(center + scale * self.low, center + scale * self.high)

    @property
    def _ends(self) -> tuple[Tensor, Tensor]:
        """Where the logit is infinite, (T,) each; some numbers for columns without bounds."""
        pad = _PAD * (self.high - self.low)
        return torch.where(self.is_bounded, self.low - pad, 0.0), torch.where(self.is_bounded, self.high + pad, 1.0)

    def _distances(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Those of values from both ends."""
        low, high = self._ends
        edge = _EDGE * (high - low)
        return (y - low).clamp(edge, high - low - edge), (high - y).clamp(edge, high - low - edge)

    def forward(self, y: Tensor) -> Tensor:
        """The logits of values (..., T)."""
        if self.is_identity:
            return y
        above, below = self._distances(y)
        return torch.where(self.is_bounded, (above / below).log(), y)

    def inverse(self, u: Tensor) -> Tensor:
        """The values of logits (..., T)."""
        if self.is_identity:
            return u
        low, high = self._ends
        return torch.where(self.is_bounded, low + (high - low) * u.sigmoid(), u).clamp(self.low, self.high)

    def log_slope(self, y: Tensor) -> Tensor:
        """The logarithm of the derivative of :meth:`forward`."""
        if self.is_identity:
            return torch.zeros_like(y)
        (low, high), (above, below) = self._ends, self._distances(y)
        return torch.where(self.is_bounded, ((high - low) / (above * below)).log(), 0.0)
