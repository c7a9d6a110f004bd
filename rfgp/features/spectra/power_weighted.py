"""A change of measure: frequencies weighted with powers of their norm."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Generator, Tensor

from ...linalg import sampling
from .base import IsotropicSpectrum
from .gaussian import Gaussian
from .matern import Matern
from .polar import chi_radius, chi_ratio_radius, polar


def radial_moment(spectrum: IsotropicSpectrum, power: int, dim: int) -> float:
    r"""The moment :math:`E \|w\|^{2 q}` of a Gaussian or Matern spectrum in d dimensions; may be infinite."""
    gaussian = 2.0**power * math.exp(math.lgamma(0.5 * dim + power) - math.lgamma(0.5 * dim))
    if isinstance(spectrum, Gaussian):
        return gaussian
    if isinstance(spectrum, Matern):
        if power >= spectrum.nu:
            return math.inf
        ratio = math.lgamma(spectrum.nu - power) - math.lgamma(spectrum.nu)
        return gaussian * spectrum.nu**power * math.exp(ratio)
    raise ValueError(f"expected a Gaussian or Matern spectrum, got {spectrum!r}; use one of these")


@dataclass(frozen=True)
class PowerWeighted(IsotropicSpectrum):
    r"""A Gaussian or Matern spectral density, weighted with powers of the norm of the frequencies.

    .. math:: \mu(w) = \frac1{|P|} \sum_{q \in P} \frac{\|w\|^{2 q}}{M_q} \rho(w), \qquad
        a(w) = \Big(\frac1{|P|} \sum_{q \in P} \frac{\|w\|^{2 q}}{M_q}\Big)^{-1/2}, \qquad M_q = E_\rho \|w\|^{2 q}

    Features of derivatives of an order q in P are bounded.

    :param spectrum: the spectral density rho of the kernel.
    :param powers: the powers P, of which one is drawn for every frequency with equal probability.
    :raises ValueError: for another spectrum, or where a moment does not exist.

    Source: M Theorem 9, Corollary 10; sampling from the errata.

    >>> PowerWeighted(Gaussian(), powers=(1, 2)).powers
    (1, 2)
    """

    has_moments: ClassVar = False
    has_quantiles: ClassVar = True
    spectrum: Gaussian | Matern = field(default_factory=Gaussian)
    powers: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        is_tuple = isinstance(self.powers, tuple) and len(self.powers) > 0
        is_whole = is_tuple and all(type(power) is int and power >= 0 for power in self.powers)
        if not is_whole or not all(math.isfinite(radial_moment(self.spectrum, power, 1)) for power in self.powers):
            raise ValueError(
                f"expected a tuple of whole powers with a finite moment under {self.spectrum}, got {self.powers!r}; "
                "derivatives of order q need nu > q"
            )

    def radius(self, width: int, dim: int, generator: Generator | None) -> Tensor:
        chosen = (sampling.uniform((width,), generator) * len(self.powers)).long().clamp_max(len(self.powers) - 1)
        radii = torch.stack([self._radius(power, width, dim, generator) for power in self.powers])
        return radii.gather(0, chosen[None]).squeeze(0)

    def _radius(self, power: int, width: int, dim: int, generator: Generator | None) -> Tensor:
        """Radii under the weight of one power: a chi variable, over the root of a gamma one for Matern."""
        chi = sampling.chi(dim + 2 * power, (width,), generator)
        if isinstance(self.spectrum, Gaussian):
            return chi
        nu = self.spectrum.nu
        return chi * math.sqrt(2.0 * nu) / sampling.chi(2.0 * (nu - power), (width,), generator)

    def from_uniforms(self, uniforms: Tensor) -> dict[str, Tensor]:
        directions, tail = polar(uniforms)
        shares = len(self.powers) * tail  # the tail of one radius, after the number of its power
        chosen = shares.long().clamp_max(len(self.powers) - 1)
        radii = [self._radius_at(power, uniforms.shape[-1], shares - chosen) for power in self.powers]
        return {"weight": torch.stack(radii).gather(0, chosen[None]).mT * directions}

    def _radius_at(self, power: int, dim: int, tail: Tensor) -> Tensor:
        """The radii that those under the weight of one power exceed with probabilities ``tail``."""
        if isinstance(self.spectrum, Gaussian):
            return chi_radius(dim + 2 * power, tail)
        nu = self.spectrum.nu
        return math.sqrt(2.0 * nu) * chi_ratio_radius(dim + 2 * power, 2.0 * (nu - power), tail)

    def frequencies(self, base_draws: dict[str, Tensor], **hyperparameters: Tensor) -> tuple[Tensor, Tensor | None]:
        frequencies = base_draws["weight"]
        square, dim = frequencies.square().sum(-1), frequencies.shape[-1]
        ratio = sum(square**power / radial_moment(self.spectrum, power, dim) for power in self.powers)
        return frequencies, (ratio / len(self.powers)) ** -0.5

    def of_distance(self, distance: Tensor, **hyperparameters: Tensor) -> Tensor:
        return self.spectrum.of_distance(distance)
