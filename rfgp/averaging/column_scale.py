"""Columns after a logit, Yeo and Johnson's transform, or none, and standardization."""

from __future__ import annotations

import copy
from typing import Self

import torch
from torch import Tensor

from .logit import Logit

_SECTIONS, _SHRINKAGE = 32, 0.6180339887498949
"""Steps of the search for powers, and by what each shortens the interval."""


class ColumnScale:
    r"""Columns that are transformed, each by its own power, and then standardized.

    .. math:: z = \frac{\psi_\lambda(u) - m}{s}, \qquad
        \psi_\lambda(u) = \frac{(1 + u)^\lambda - 1}{\lambda}, \quad
        \psi_\lambda(-u) = -\psi_{2 - \lambda}(u), \quad u \ge 0

    Here u are standardized columns. The powers in [0, 2] are those under which columns are most probably normal; one is
    the identity. Columns that do not vary keep their unit. Where columns have bounds, u are standardized values of
    their :class:`Logit`.

    :param y: columns (N, T), where NaN is missing.
    :param is_transformed: whether powers are chosen, or one and no bounds.
    :param bounds: the bounds l and h of every column, (T,) each, infinite for none.

    Source: Yeo and Johnson, 2000.

    >>> scale = ColumnScale(torch.tensor([[0.0], [1.0], [100.0]], dtype=torch.float64), is_transformed=True)
    >>> bool(scale.power < 0.2), scale.inverse(scale.forward(torch.tensor([[7.0]]))).round().tolist()
    (True, [[7.0]])
    """

    def __init__(self, y: Tensor, is_transformed: bool, bounds: tuple[Tensor, Tensor] | None = None) -> None:
        endless = torch.full_like(y[0], torch.inf)
        self.logit = Logit(*bounds) if bounds is not None and is_transformed else Logit(-endless, endless)
        values = self.logit.forward(y)
        self.mean, self.std = values.nanmean(0), _variance(values).sqrt()
        self.std = torch.where(self.std > 0.0, self.std, 1.0)
        standard = (values - self.mean) / self.std
        self.power = _most_normal(standard) if is_transformed else torch.ones_like(self.mean)
        moved = powered(standard, self.power)
        self.center, unit = moved.nanmean(0), _variance(moved).sqrt()
        self.unit = torch.where(unit > 0.0, unit, 1.0)

    @property
    def is_linear(self) -> bool:
        """Whether there is no transform."""
        return bool((self.power == 1.0).all()) and self.logit.is_identity

    def of(self, columns: Tensor) -> Self:
        """The scale of some of the columns."""
        twin = copy.copy(self)
        twin.logit = self.logit.of(columns)
        names = ("mean", "std", "power", "center", "unit")
        vars(twin).update({name: getattr(self, name)[columns] for name in names})
        return twin

    def rescaled(self, center: Tensor, scale: Tensor) -> Self:
        """The same scale for columns center + scale y, with both of shape (T,)."""
        twin = copy.copy(self)
        is_bounded, twin.logit = self.logit.is_bounded, self.logit.rescaled(center, scale)
        twin.mean = torch.where(is_bounded, self.mean, center + scale * self.mean)
        twin.std = torch.where(is_bounded, self.std, scale * self.std)
        return twin

    def forward(self, y: Tensor) -> Tensor:
        """Values (..., T) on this scale."""
        return (powered((self.logit.forward(y) - self.mean) / self.std, self.power) - self.center) / self.unit

    def inverse(self, z: Tensor) -> Tensor:
        """Values (..., T) in the units of the columns."""
        return self.logit.inverse(self.mean + self.std * unpowered(self.center + self.unit * z, self.power))

    def log_slope(self, y: Tensor) -> Tensor:
        """The logarithm of the derivative of :meth:`forward`."""
        standard = (self.logit.forward(y) - self.mean) / self.std
        return log_slope(standard, self.power) - (self.std * self.unit).log() + self.logit.log_slope(y)


def powered(u: Tensor, power: Tensor) -> Tensor:
    """The function of Yeo and Johnson, whose powers are broadcast."""
    return torch.where(u >= 0.0, _power(u, power), -_power(-u, 2.0 - power))


def unpowered(z: Tensor, power: Tensor) -> Tensor:
    """The inverse of :func:`powered`."""
    return torch.where(z >= 0.0, _root(z, power), -_root(-z, 2.0 - power))


def log_slope(u: Tensor, power: Tensor) -> Tensor:
    """The logarithm of the derivative of :func:`powered`."""
    return torch.where(u >= 0.0, power - 1.0, 1.0 - power) * u.abs().log1p()


def _power(u: Tensor, power: Tensor) -> Tensor:
    logs = u.clamp_min(0.0).log1p()
    return torch.where(power == 0.0, logs, (power * logs).expm1() / _nonzero(power))


def _root(z: Tensor, power: Tensor) -> Tensor:
    values = z.clamp_min(0.0)
    return torch.where(power == 0.0, values, (power * values).log1p() / _nonzero(power)).expm1()


def _nonzero(power: Tensor) -> Tensor:
    return torch.where(power == 0.0, 1.0, power)


def _variance(columns: Tensor) -> Tensor:
    """The variances (T,) of columns (N, T), of which there may be none."""
    return (columns - columns.nanmean(0)).square().nanmean(0)


def _most_normal(standard: Tensor) -> Tensor:
    """For standardized columns (N, T) the powers of the largest normal likelihood, by golden sections of [0, 2]."""

    def loss(power: Tensor) -> Tensor:
        spread = _variance(powered(standard, power)).clamp_min(1e-300)
        return 0.5 * spread.log() - log_slope(standard, power).nanmean(0)

    low, high = torch.zeros_like(standard[0]), torch.full_like(standard[0], 2.0)
    left, right = high - _SHRINKAGE * (high - low), low + _SHRINKAGE * (high - low)
    at_left, at_right = loss(left), loss(right)
    for _ in range(_SECTIONS):
        is_left = at_left < at_right
        low, high = torch.where(is_left, low, left), torch.where(is_left, right, high)
        new = torch.where(is_left, high - _SHRINKAGE * (high - low), low + _SHRINKAGE * (high - low))
        at_new = loss(new)
        left, right = torch.where(is_left, new, right), torch.where(is_left, left, new)
        at_left, at_right = torch.where(is_left, at_new, at_right), torch.where(is_left, at_left, at_new)
    return 0.5 * (low + high)
