"""Shift-invariant kernels."""

from __future__ import annotations

import abc
import math
from functools import reduce

import torch
from gpytorch.kernels import MaternKernel, RBFKernel, RQKernel, SpectralMixtureKernel
from torch import Tensor

from ...features import (
    FeatureMap,
    Gaussian,
    Maclaurin,
    Matern,
    RandomFourier,
    RationalQuadratic,
    SpectralMixture,
    Spectrum,
)
from ...kernels.stationary import StationaryKernel
from ..family import approximates
from ..map_family import MapFamily, random_fourier
from ..maps import MapRecipe
from ..method import FeatureMethod
from ..power_series import exponential_series, maclaurin
from ..reference_tensor import reference_tensor
from ..request import Request
from ..spectral_weights import GridFrequencies, SpectralWeights, no_density, variance_of_copies
from ..values import accurate_values
from .grid import SpectralGrid, draw_grid

_FEW_INPUTS = 8
"""Above these, Sobol points are no better than orthogonal frequencies."""


class FourierFamily(MapFamily):
    """Shift-invariant kernels: a family of your own defines ``spectrum``, and ``scaled`` if need be."""

    @property
    @abc.abstractmethod
    def spectrum(self) -> Spectrum:
        """The spectral density of the kernel, for scaled inputs."""

    @property
    def is_shift_invariant(self) -> bool:
        return True

    @property
    def methods(self) -> tuple[str, ...]:
        isotropic = ("fourier_orthogonal", "fourier_hadamard") if self.spectrum.is_isotropic else ()
        return ("fourier", *isotropic, *(("fourier_qmc",) if self.spectrum.has_quantiles else ()))

    def _applicable(self, input_dim: int) -> tuple[FeatureMethod, ...]:
        has_few = input_dim <= _FEW_INPUTS
        return tuple(method for method in super()._applicable(input_dim) if has_few or method.structure != "qmc")

    @property
    def default(self) -> str:
        return "fourier_orthogonal" if self.spectrum.is_isotropic else "fourier"

    @property
    def in_products(self) -> str:
        return self.default

    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        return random_fourier(recipe, input_dim, self.spectrum)

    def draw_grid(self, request: Request) -> SpectralGrid:
        return draw_grid(self.kernel, request)

    def spectral_weights(self, at: GridFrequencies) -> SpectralWeights:
        if not self.is_shift_invariant:
            raise no_density(self.kernel)
        if self.spectrum.is_separable and len(at.dims) > 1 and not at.is_shifted:
            columns = [self._of_column(at, column) for column in range(len(at.dims))]
            return reduce(SpectralWeights.times, columns)
        values = self.sampled_density(at)
        weights = SpectralWeights(values, frozenset(at.dims), torch.zeros_like(values[..., 0]))
        if at.is_shifted:  # inside a product, which says what its variance is
            return weights
        prior = accurate_values(self.kernel, at.origin, at.origin, diag=True).squeeze(-1)
        beside_zero = self._beside_zero(at)
        if beside_zero is None:
            beside_zero = variance_of_copies(self.kernel, at) - self.sampled_density(at.zero)[..., 0]
        return weights.with_variance(prior, beside_zero, at)

    def _of_column(self, at: GridFrequencies, column: int) -> SpectralWeights:
        """The weights of the factor of one of the columns, with a prior variance of one."""
        scale = self._scaling(at)[..., column, column].abs()
        one = at._replace(dims=at.dims[column : column + 1])
        density = self.spectrum.density_at(one.seen / scale[..., None, None], **self._parameters())
        values = density * (one.volume / scale).unsqueeze(-1)
        beside_zero = self.spectrum.beside_zero(scale.unsqueeze(-1) * one.periods, **self._parameters())
        if beside_zero is None:
            raise no_density(self.kernel)
        weights = SpectralWeights(values, frozenset(one.dims), torch.zeros_like(scale))
        return weights.with_variance(torch.ones_like(scale), beside_zero, one)

    def sampled_density(self, at: GridFrequencies) -> Tensor:
        """The density at frequencies times the volume of a cell, (..., J)."""
        scaling = self._scaling(at)
        frequencies = torch.linalg.solve(scaling, at.seen.mT).mT
        density = self.spectrum.density_at(frequencies, **self._parameters())
        return density * (at.volume / torch.linalg.det(scaling).abs()).unsqueeze(-1)

    def _beside_zero(self, at: GridFrequencies) -> Tensor | None:
        """The weights of all frequencies of a grid but zero, in closed form; None where there is none."""
        scaling = self._scaling(at)
        scales = scaling.diagonal(dim1=-2, dim2=-1)
        if not torch.equal(scaling, torch.diag_embed(scales)):
            return None
        return self.spectrum.beside_zero(scales.abs() * at.periods, **self._parameters())

    def _scaling(self, at: GridFrequencies) -> Tensor:
        """The matrix (..., d, d) by which rows of inputs are scaled."""
        like = reference_tensor(self.kernel)
        identity = torch.eye(len(at.dims), dtype=like.dtype, device=like.device)
        scaling: Tensor = self.scaled(identity).double()
        return scaling

    def _parameters(self) -> dict[str, Tensor]:
        return {name: value.double() for name, value in self.hyperparameters().items()}

    def hyperparameters(self, feature_map: FeatureMap | None = None) -> dict[str, Tensor]:
        """Parameters of the kernel that the spectral density takes; differentiable."""
        return {}

    def mismatch(self, feature_map: FeatureMap) -> str:
        if isinstance(feature_map, RandomFourier):
            spectrum, wanted = feature_map.spectrum, self.spectrum
            if spectrum == wanted or (type(spectrum) is type(wanted) and self.hyperparameters(feature_map)):
                return ""
        return f"RandomFourier with spectrum={self.spectrum}"


@approximates(StationaryKernel)
class StationaryFamily(FourierFamily):
    """Kernels that say which spectral density they have."""

    kernel: StationaryKernel

    @property
    def spectrum(self) -> Spectrum:
        return self.kernel.spectrum

    @property
    def is_shift_invariant(self) -> bool:
        return self.kernel.is_stationary

    def scaled(self, x: Tensor) -> Tensor:
        return self.kernel.scaled(x)

    def hyperparameters(self, feature_map: FeatureMap | None = None) -> dict[str, Tensor]:
        return self.kernel.hyperparameters()


@approximates(MaternKernel)
class MaternFamily(FourierFamily):
    """MaternKernel."""

    kernel: MaternKernel
    settings = ("nu",)

    @property
    def spectrum(self) -> Spectrum:
        return Matern(self.kernel.nu)


@approximates(RQKernel)
class RationalQuadraticFamily(FourierFamily):
    """RQKernel, whose shape belongs to the spectral density."""

    kernel: RQKernel

    @property
    def spectrum(self) -> Spectrum:
        return RationalQuadratic()

    def hyperparameters(self, feature_map: FeatureMap | None = None) -> dict[str, Tensor]:
        return {"alpha": self.kernel.alpha.squeeze(-1)}

    def sampled_density(self, at: GridFrequencies) -> Tensor:
        """The density times the volume of a cell; at zero, where it may be infinite, the mass of a ball of a cell."""
        values, dim = super().sampled_density(at), len(at.dims)
        volume = at.volume / torch.linalg.det(self._scaling(at)).abs()
        ball = math.pi ** (0.5 * dim) / math.gamma(0.5 * dim + 1.0)
        alpha = self.kernel.alpha.squeeze(-1).double()
        zero = RationalQuadratic().mass_around_zero((volume / ball) ** (1.0 / dim), dim, alpha)
        return torch.where((at.seen == 0.0).all(-1), zero.unsqueeze(-1), values)


@approximates(RBFKernel)
class GaussianFamily(FourierFamily):
    r"""RBFKernel, :math:`\exp(-\|x - y\|^2/(2 \ell^2))`, by Fourier features, or Maclaurin ones of centered inputs."""

    truncated = ("random_maclaurin", "optimized_maclaurin")

    @property
    def methods(self) -> tuple[str, ...]:
        return (*super().methods, *self.truncated)

    @property
    def spectrum(self) -> Spectrum:
        return Gaussian()

    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        if not recipe.method.is_maclaurin:
            return super().build(recipe, input_dim, x)
        scaled = None if x is None else self.scaled(x - x.mean(-2)).detach()
        return maclaurin(recipe, input_dim, exponential_series(), scaled, is_gaussian=True)

    def mismatch(self, feature_map: FeatureMap) -> str:
        if isinstance(feature_map, Maclaurin) and feature_map.is_gaussian:
            return ""
        return super().mismatch(feature_map)

    def is_truncated(self, feature_map: FeatureMap) -> bool:
        return isinstance(feature_map, Maclaurin)  # the series does not end

    def center(self, recipe: MapRecipe, x: Tensor | None) -> Tensor | None:
        return x.mean(-2) if x is not None and recipe.method.is_maclaurin else None


@approximates(SpectralMixtureKernel)
class SpectralMixtureFamily(FourierFamily):
    """SpectralMixtureKernel, all of whose parameters belong to the spectral density."""

    kernel: SpectralMixtureKernel
    settings = ("num_mixtures",)

    @property
    def spectrum(self) -> Spectrum:
        return SpectralMixture(self.kernel.num_mixtures)

    def hyperparameters(self, feature_map: FeatureMap | None = None) -> dict[str, Tensor]:
        return {
            "weights": self.kernel.mixture_weights,
            "means": self.kernel.mixture_means.squeeze(-2),
            "scales": self.kernel.mixture_scales.squeeze(-2),
        }
