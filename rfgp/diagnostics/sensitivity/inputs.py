"""Distributions of independent inputs, with their characteristic functions."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from ..._support import checks

_FINE, _NODES, _LIMIT = 1024, 8, 8.0


class InputDistribution(abc.ABC):
    r"""The distribution of one uncertain input X, which is independent of the others.

    .. math:: \chi(\omega) = E\, e^{\mathrm{i} \omega X} = e^{\mathrm{i} \omega E X}\, \chi_0(\omega)

    >>> from rfgp.diagnostics.sensitivity import Uniform
    >>> uniform = Uniform(0.0, 1.0)
    >>> isinstance(uniform, InputDistribution), uniform.mean
    (True, 0.5)
    """

    mean: float
    variance: float

    @property
    def poincare_constant(self) -> float | None:
        r"""The smallest C with :math:`\mathrm{Var}\, g(X) \le C\, E\, g'(X)^2` for all g; None where there is none."""
        return None

    @abc.abstractmethod
    def centered_characteristic(self, w: Tensor) -> Tensor:
        r""":math:`\chi_0(\omega) = E\, e^{\mathrm{i} \omega (X - E X)}`, of the shape of w; real for symmetric X."""

    @abc.abstractmethod
    def centered_moment(self, w: Tensor) -> Tensor:
        r""":math:`E\, (X - E X)\, e^{\mathrm{i} \omega (X - E X)}`, of the shape of w, complex."""

    @abc.abstractmethod
    def quantile(self, level: Tensor) -> Tensor:
        """The quantiles at levels in [0, 1], of their shape."""

    def characteristic(self, w: Tensor) -> Tensor:
        """The characteristic function at frequencies w, in radians per unit of the input, of their shape, complex."""
        w = checks.floating(w, "w").double()
        return torch.polar(torch.ones_like(w), w * self.mean) * self.centered_characteristic(w)

    def at_differences(self, v: Tensor, w: Tensor) -> Tensor:
        r"""The matrix :math:`\chi_0(v_j - w_l)`, (n,) and (m,) to (n, m)."""
        return self.centered_characteristic(v.unsqueeze(-1) - w)

    def sample(self, num_points: int, generator: Generator | None = None) -> Tensor:
        """Independent draws, (num_points,), by a CPU generator; default: PyTorch's own."""
        count = checks.positive_integer("num_points", num_points)
        return self.quantile(torch.rand(count, dtype=torch.float64, generator=checks.generator(generator)))

    def grid(self, num_points: int) -> Tensor:
        """Equally spaced values from the 0.5 % to the 99.5 % quantile, (num_points,)."""
        low, high = self.quantile(torch.tensor([0.005, 0.995], dtype=torch.float64)).tolist()
        return torch.linspace(low, high, num_points, dtype=torch.float64)


class Uniform(InputDistribution):
    r"""The uniform distribution on [low, high], with :math:`\chi_0(\omega) = \mathrm{sinc}(\omega (b - a) / 2)`.

    :raises ValueError: unless low < high, both finite.

    >>> Uniform(0.0, 1.0).characteristic(torch.zeros(1)).real
    tensor([1.], dtype=torch.float64)
    """

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = checks.number(low), checks.number(high)
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError(f"expected two numbers with low < high, got {low!r} and {high!r}; such as Uniform(0, 1)")
        self.mean, self.variance = 0.5 * (self.low + self.high), (self.high - self.low) ** 2 / 12.0

    @property
    def poincare_constant(self) -> float:
        return (self.high - self.low) ** 2 / math.pi**2

    def centered_characteristic(self, w: Tensor) -> Tensor:
        return torch.sinc(w * ((self.high - self.low) / (2.0 * math.pi)))

    def centered_moment(self, w: Tensor) -> Tensor:
        half = 0.5 * (self.high - self.low)
        return 1j * half * _bessel_j1(w * half)

    def quantile(self, level: Tensor) -> Tensor:
        return self.low + (self.high - self.low) * level

    def __repr__(self) -> str:
        return f"Uniform({self.low:g}, {self.high:g})"


class Normal(InputDistribution):
    r"""The normal distribution, with :math:`\chi_0(\omega) = e^{-\omega^2 \sigma^2 / 2}`.

    :raises ValueError: for a mean that is not finite, or a standard deviation that is not positive.

    >>> Normal(20.0, 0.5).variance
    0.25
    """

    def __init__(self, mean: float, std: float) -> None:
        self.mean, self.std = checks.number(mean), checks.positive("std", std)
        if not math.isfinite(self.mean):
            raise ValueError(f"expected a finite number for mean, got {mean!r}; such as Normal(0, 1)")
        self.variance = self.std**2

    @property
    def poincare_constant(self) -> float:
        return self.variance

    def centered_characteristic(self, w: Tensor) -> Tensor:
        return torch.exp(-0.5 * self.variance * w.square())

    def centered_moment(self, w: Tensor) -> Tensor:
        return 1j * self.variance * w * self.centered_characteristic(w)

    def quantile(self, level: Tensor) -> Tensor:
        inside = level.clamp(torch.finfo(level.dtype).tiny, 1.0 - 0.5 * torch.finfo(level.dtype).eps)
        return self.mean + self.std * torch.special.ndtri(inside)

    def __repr__(self) -> str:
        return f"Normal({self.mean:g}, {self.std:g})"


class Empirical(InputDistribution):
    r"""The distribution of measured values, each of which is as likely: :math:`\chi(\omega)` is their mean.

    :param values: the values (n,), two of which differ.
    :raises ValueError: for other shapes, or values that are not finite, or all equal.

    >>> Empirical([1.0, 2.0, 6.0]).mean
    3.0
    """

    def __init__(self, values: Any) -> None:
        numbers = checks.real_tensor(values, "values").detach().double().cpu()
        if numbers.dim() != 1 or not len(numbers):
            raise ValueError(f"expected values of shape (n,), got {tuple(numbers.shape)}; pass those of one input")
        self.values = checks.finite(numbers, "values").sort().values
        if bool(self.values[0] == self.values[-1]):
            raise ValueError(
                f"expected values that differ, got {len(numbers)} times {numbers[0]:g}; leave the input out"
            )
        self._set_weights(torch.full_like(numbers, 1.0 / len(numbers)))

    def _set_weights(self, weights: Tensor) -> None:
        """Give the values probabilities (n,), and the distribution their mean and variance."""
        self.weights, self.mean = weights, float(weights @ self.values)
        self.variance = float(weights @ (self.values - self.mean).square())

    def _centered(self, w: Tensor) -> tuple[Tensor, Tensor]:
        deviations = self.values.to(w.device) - self.mean
        return deviations, torch.polar(torch.ones((), dtype=w.dtype, device=w.device), w.unsqueeze(-1) * deviations)

    def centered_characteristic(self, w: Tensor) -> Tensor:
        waves = self._centered(w)[1]
        return waves @ self.weights.to(waves)

    def centered_moment(self, w: Tensor) -> Tensor:
        deviations, waves = self._centered(w)
        return waves @ (deviations * self.weights.to(deviations)).to(waves)

    def at_differences(self, v: Tensor, w: Tensor) -> Tensor:
        waves = self._centered(v)[1]
        return (waves * self.weights.to(waves)) @ self._centered(w)[1].mH

    def quantile(self, level: Tensor) -> Tensor:
        count = len(self.values)
        return self.values.to(level.device)[(level * count).long().clamp_max(count - 1)]

    def __repr__(self) -> str:
        return f"Empirical({len(self.values)} values)"


def default_names(count: int) -> list[str]:
    """The names of so many inputs without names."""
    return [f"x{k + 1}" for k in range(count)]


def outside(distribution: InputDistribution, low: float, high: float) -> tuple[float, float]:
    """The shares of a distribution and of its variance that lie outside an interval."""
    z, weights = normal_nodes(_FINE)
    values = distribution.quantile(torch.special.ndtr(z))
    is_outside = (values < low) | (values > high)
    square = weights * (values - weights @ values).square()
    return float(weights[is_outside].sum()), float(square[is_outside].sum() / square.sum())


def normal_nodes(parts: int = 64) -> tuple[Tensor, Tensor]:
    """Nodes z in [-8, 8] and weights that sum to one, (8 parts,) each, for means over a standard normal variable.

    They are those of Gauss and Legendre in parts of equal width, so that quantile functions may have kinks.
    """
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(_NODES))
    half = _LIMIT / parts
    centers = half * (2.0 * torch.arange(parts, dtype=torch.float64) + 1.0) - _LIMIT
    z = (centers.unsqueeze(-1) + half * nodes).flatten()
    density = torch.exp(-0.5 * z.square()) * weights.repeat(parts)
    return z, density / density.sum()


def points(inputs: Sequence[InputDistribution], levels: Tensor) -> Tensor:
    """The quantiles (..., d) of all inputs at levels (..., d)."""
    return torch.stack([distribution.quantile(levels[..., k]) for k, distribution in enumerate(inputs)], dim=-1)


def _bessel_j1(z: Tensor) -> Tensor:
    r"""The spherical Bessel function :math:`j_1(z) = (\sin z / z - \cos z) / z`, by its series near zero."""
    small = z.abs() < 0.1
    safe = torch.where(small, torch.ones_like(z), z)
    square = z.square()
    series = z / 3.0 * (1.0 - square / 10.0 * (1.0 - square / 28.0 * (1.0 - square / 54.0 * (1.0 - square / 88.0))))
    return torch.where(small, series, (safe.sin() / safe - safe.cos()) / safe)
