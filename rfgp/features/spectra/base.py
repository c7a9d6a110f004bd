"""Spectral densities of shift-invariant kernels: how frequencies are drawn, and the exact kernel they belong to."""

from __future__ import annotations

import abc
from typing import ClassVar

import torch
from torch import Generator, Tensor

from ...linalg import sampling


class Spectrum(abc.ABC):
    r"""The spectral density of a shift-invariant kernel of scaled inputs, by Bochner's theorem.

    .. math:: k(x - y) = E[a^2 \exp(\mathrm{i} w^\top (x - y))]

    with random frequencies w and amplitude a, 1 for most kernels; both are differentiable in hyperparameters.

    >>> from rfgp.features import Gaussian
    >>> isinstance(Gaussian(), Spectrum)
    True
    """

    is_isotropic: ClassVar[bool] = False
    has_moments: ClassVar[bool] = True
    """Whether the variance of the kernel estimate follows from the kernel at twice the distance."""

    has_quantiles: ClassVar[bool] = False
    """Whether ``from_uniforms`` makes base draws."""

    is_separable: ClassVar[bool] = False
    """Whether the kernel is a product over the coordinates."""

    @abc.abstractmethod
    def draw(self, width: int, dim: int, generator: Generator | None) -> dict[str, Tensor]:
        """Base draws for ``width`` independent frequencies of ``dim`` entries, by name: float64, on the CPU."""

    def num_uniforms(self, dim: int) -> int:
        """The number of uniform variables that a frequency of ``dim`` entries is made of."""
        return dim

    def from_uniforms(self, uniforms: Tensor) -> dict[str, Tensor]:
        """Base draws from uniform variables (D, num_uniforms) by inverse distribution functions."""
        raise ValueError(
            f"expected a spectrum with inverse distribution functions for qmc, got {type(self).__name__}; use "
            'structure="independent", method="fourier"'
        )

    @abc.abstractmethod
    def frequencies(self, base_draws: dict[str, Tensor], **hyperparameters: Tensor) -> tuple[Tensor, Tensor | None]:
        """Frequencies (..., D, d), and amplitudes (..., D) where they are not 1, from base draws and parameters."""

    @abc.abstractmethod
    def kernel(self, x: Tensor, y: Tensor, factor: float = 1.0, **hyperparameters: Tensor) -> Tensor:
        """The kernel of ``factor`` times the difference, (..., N, d) and (..., M, d) to (..., N, M)."""

    def at_zero(self, **hyperparameters: Tensor) -> Tensor | float:
        """The kernel of a point with itself."""
        return 1.0

    def density_at(self, w: Tensor, **hyperparameters: Tensor) -> Tensor:
        r"""The density S at frequencies (..., D, d), (..., D), with :math:`k(x) = \int S(w) e^{i w^\top x} dw`."""
        raise ValueError(
            f"expected a spectral density in closed form, got {type(self).__name__}, which has none; use random "
            "Fourier features"
        )

    def beside_zero(self, periods: Tensor, **hyperparameters: Tensor) -> Tensor | None:
        r"""The weights of all frequencies of a grid but zero, (...); None where there is no closed form.

        .. math:: \sum_{j \ne 0} S(\omega_j) \prod_a \frac{2 \pi}{p_a}, \qquad \omega_{ja} = \frac{2 \pi j_a}{p_a}

        :param periods: p, of scaled inputs, (..., d), in float64.
        """
        return None


class IsotropicSpectrum(Spectrum):
    """A spectral density with uniform directions: w = radius times direction, and directions may be orthogonal."""

    is_isotropic = True

    def draw(self, width: int, dim: int, generator: Generator | None) -> dict[str, Tensor]:
        directions = torch.nn.functional.normalize(sampling.gaussian((width, dim), generator), dim=-1)
        return self.with_directions(directions, dim, generator)

    def with_directions(self, directions: Tensor, dim: int, generator: Generator | None) -> dict[str, Tensor]:
        """Base draws for given unit directions in a space of ``dim`` dimensions."""
        return {"weight": self.radius(len(directions), dim, generator)[:, None] * directions}

    @abc.abstractmethod
    def radius(self, width: int, dim: int, generator: Generator | None) -> Tensor:
        """Independent radii (D,) of frequencies in ``dim`` dimensions."""

    def frequencies(self, base_draws: dict[str, Tensor], **hyperparameters: Tensor) -> tuple[Tensor, Tensor | None]:
        return base_draws["weight"], None

    def kernel(self, x: Tensor, y: Tensor, factor: float = 1.0, **hyperparameters: Tensor) -> Tensor:
        distance = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
        return self.of_distance(factor * distance, **hyperparameters)

    @abc.abstractmethod
    def of_distance(self, distance: Tensor, **hyperparameters: Tensor) -> Tensor:
        """The kernel as a function of the distance of scaled inputs."""
