"""Kernels of several outputs on a grid of frequencies, by the factors b(w) of the outputs."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ...functionals import Operator
from ...inference import OutputFactor
from ...inference.posterior.covariance import ResidualCovariance
from ..family import KernelMoments, family
from ..grid_choice import FieldGridChoice
from ..registry import OF_MAPS
from ..spectral_factor import SpectralFactor
from ..spectral_weights import GridFrequencies, zero_and
from ..values import accurate_blocks, accurate_variances
from ..waves import Waves
from .grid import GridFamily, SpectralGrid


class FieldGrid(SpectralGrid):
    """The frequencies of a kernel of several outputs."""


class FieldGridFamily(GridFamily):
    r"""A stationary kernel of T outputs with the features of a grid of frequencies, see :class:`GridFamily`.

    .. math:: K(x, y) \approx \sum_j w_j\, \mathrm{Re}\, e^{i \omega_j^\top (x - y)}\, b(\omega_j) b(\omega_j)^H

    The output factor contains the amplitudes. Sums are those of plain cosines and sines, and a sum of kernels has one
    grid for all of its parts. What the grid cuts off is a covariance of the outputs at one point.

    Kernels are CurlFreeKernel, DivergenceFreeKernel, HelmholtzKernel or LinearlyObservedKernel, or sums, scaled or not,
    of these or of MultitaskKernels.

    Source: errata, identities 2 and 13.
    """

    maps_kind = FieldGrid

    @property
    def has_output_factor(self) -> bool:
        return True

    def output_factor(self, operator: Operator | None = None) -> OutputFactor:
        return OutputFactor.on_grid(self._factor(operator).values)

    @property
    def summed_amplitudes(self) -> Tensor:
        return self.maps.spacing.new_ones(self.num_scalar_features, dtype=torch.float64)

    def active_residual(self, x: Tensor) -> ResidualCovariance:
        grid = self.maps.grid
        is_near = grid.is_inside(grid.phases(x)).all(-1)
        places = torch.stack([is_near, ~is_near], dim=-1).to(x.dtype)
        return ResidualCovariance(places, torch.stack([self._factor().cut_off, self._prior()], dim=-3).to(x.dtype))

    def active_moments(self, x: Tensor, y: Tensor) -> KernelMoments:
        factor = self.output_factor()
        mean = factor.features(self.active_features(x)) @ factor.features(self.active_features(y)).mT
        variance = mean.new_zeros(*mean.shape[:-2], x.shape[-2], y.shape[-2])
        return KernelMoments(mean, variance)

    def active_waves(self, input_dim: int) -> Waves:
        values, like = self._factor().values, self.like
        twice = torch.ones(values.shape[-3], 1, 1, dtype=torch.float64, device=values.device)
        twice[1:] = 2.0**0.5
        frequencies = (zero_and(self.maps.orders) * self.maps.spacing).repeat_interleave(values.shape[-1], dim=0)
        factor = (twice * values).mT.flatten(-3, -2)
        dtype = like.dtype.to_complex() if factor.is_complex() else like.dtype
        return Waves(frequencies.to(like), factor.to(dtype))

    @staticmethod
    def choice(kernel: Kernel, bounds: Tensor) -> FieldGridChoice:
        """The choice of a grid for a kernel with its present parameters; batches are averaged."""
        dim = bounds.shape[-1]
        spectral_factor(kernel, bounds.new_zeros(1, dim), bounds.new_ones(dim))  # which raises where there is none

        def weights(orders: Tensor, spacing: Tensor) -> tuple[Tensor, Tensor]:
            found = spectral_factor(kernel, zero_and(orders), spacing)
            return _batch_mean(found.weights), _batch_mean(
                found.total.diagonal(dim1=-2, dim2=-1).unsqueeze(-2)
            ).squeeze(0)

        def values(differences: Tensor) -> Tensor:
            return _batch_mean(accurate_variances(kernel, differences))

        return FieldGridChoice(weights, values, bounds)

    def _prior(self) -> Tensor:
        """The prior covariance (..., T, T) of the outputs at one point, in float64."""
        zero = self.maps.spacing.double().new_zeros(1, self.input_dim)
        return accurate_blocks(self.kernel, zero).squeeze(-3)

    def _factor(self, operator: Operator | None = None) -> SpectralFactor:
        """The factors at zero and at the orders."""
        return spectral_factor(self.kernel, zero_and(self.maps.orders), self.maps.spacing.double(), operator)


OF_MAPS[FieldGrid] = FieldGridFamily


def spectral_factor(
    kernel: Kernel, orders: Tensor, spacing: Tensor, operator: Operator | None = None
) -> SpectralFactor:
    """The factors at zero and other orders (J, d) of a grid."""
    return family(kernel).spectral_factor(GridFrequencies.of(orders * spacing, spacing), operator)


def _batch_mean(values: Tensor) -> Tensor:
    """The mean of a batch of matrices, (..., n, T) to (n, T)."""
    return values.reshape(-1, *values.shape[-2:]).mean(0)
