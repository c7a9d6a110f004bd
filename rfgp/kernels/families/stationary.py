"""Shift-invariant kernels."""

from __future__ import annotations

import abc
from typing import ClassVar

from gpytorch.kernels import MaternKernel, RBFKernel, RQKernel, SpectralMixtureKernel
from torch import Tensor

from ...features import (
    Advected,
    FeatureMap,
    Gaussian,
    HyperbolicSecant,
    Laplace,
    Maclaurin,
    Matern,
    RandomFourier,
    RationalQuadratic,
    SpectralMixture,
    Spectrum,
)
from ..advected import AdvectedKernel
from ..family import approximates
from ..laplace import LaplaceKernel
from ..power_series import exponential_series, maclaurin
from ..recipe import MapRecipe
from ..skewed_chi2 import SkewedChiSquaredKernel
from .leaf import LeafFamily


class FourierFamily(LeafFamily):
    """Shift-invariant kernels: a family of your own defines ``spectrum``, and ``scaled`` if need be."""

    is_shift_invariant: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("fourier",)
    default: ClassVar[str] = "fourier"
    in_products: ClassVar[str | None] = "fourier"

    @property
    @abc.abstractmethod
    def spectrum(self) -> Spectrum:
        """The spectral density of the kernel, for scaled inputs."""

    def scaled(self, x: Tensor) -> Tensor:
        """The inputs (..., N, d) in units in which the kernel has that spectral density; differentiable."""
        return x / self.kernel.lengthscale if self.kernel.has_lengthscale else x

    def inputs(self, feature_map: FeatureMap, x: Tensor) -> Tensor:
        return self.scaled(x)

    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        return RandomFourier(
            input_dim,
            recipe.num_features,
            self.spectrum,
            recipe.method.structure,
            recipe.is_complex,
            generator=recipe.generator,
            dtype=recipe.dtype,
        )

    def mismatch(self, feature_map: FeatureMap) -> str:
        if isinstance(feature_map, RandomFourier):
            found, wanted = feature_map.spectrum, self.spectrum
            if found == wanted or (type(found) is type(wanted) and self.hyperparameters(feature_map)):
                return ""
        return f"RandomFourier with spectrum={self.spectrum}"


class IsotropicFamily(FourierFamily):
    """Kernels of the distance of scaled inputs, whose frequencies may have orthogonal directions."""

    methods: ClassVar[tuple[str, ...]] = ("fourier", "fourier_orthogonal", "fourier_hadamard")
    default = "fourier_orthogonal"
    in_products = "fourier_orthogonal"


@approximates(MaternKernel)
class MaternFamily(IsotropicFamily):
    """MaternKernel."""

    kernel: MaternKernel
    settings = ("nu",)

    @property
    def spectrum(self) -> Spectrum:
        return Matern(self.kernel.nu)


@approximates(RQKernel)
class RationalQuadraticFamily(IsotropicFamily):
    """RQKernel, whose shape belongs to the spectral density."""

    kernel: RQKernel

    @property
    def spectrum(self) -> Spectrum:
        return RationalQuadratic()

    def hyperparameters(self, feature_map: FeatureMap) -> dict[str, Tensor]:
        return {"alpha": self.kernel.alpha.squeeze(-1)}


@approximates(RBFKernel)
class GaussianFamily(IsotropicFamily):
    r"""RBFKernel: :math:`\exp(-\|x - y\|^2/(2 \ell^2))`, by Fourier or Maclaurin features.

    Maclaurin features are best near the origin: they see inputs from which the mean of the training inputs has been
    subtracted, which leaves the kernel as it is.
    """

    methods = (*IsotropicFamily.methods, "random_maclaurin", "optimized_maclaurin")
    truncated = ("random_maclaurin", "optimized_maclaurin")

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


@approximates(LaplaceKernel)
class LaplaceFamily(FourierFamily):
    """LaplaceKernel, whose frequencies have independent Cauchy entries."""

    kernel: LaplaceKernel

    @property
    def spectrum(self) -> Spectrum:
        return Laplace()


@approximates(AdvectedKernel)
class AdvectedFamily(FourierFamily):
    """AdvectedKernel, whose velocity belongs to the spectral density."""

    kernel: AdvectedKernel
    settings = ("num_space_dims",)

    @property
    def spectrum(self) -> Spectrum:
        return Advected()

    def hyperparameters(self, feature_map: FeatureMap) -> dict[str, Tensor]:
        return self.kernel.scaled_drift()


@approximates(SkewedChiSquaredKernel)
class SkewedChiSquaredFamily(FourierFamily):
    """SkewedChiSquaredKernel, shift-invariant in log(x + c)."""

    kernel: SkewedChiSquaredKernel
    is_shift_invariant: ClassVar[bool] = False
    settings = ("skewness",)

    @property
    def spectrum(self) -> Spectrum:
        return HyperbolicSecant()

    def scaled(self, x: Tensor) -> Tensor:
        return self.kernel.log_inputs(x)


@approximates(SpectralMixtureKernel)
class SpectralMixtureFamily(FourierFamily):
    """SpectralMixtureKernel, all of whose parameters belong to the spectral density."""

    kernel: SpectralMixtureKernel
    settings = ("num_mixtures",)

    @property
    def spectrum(self) -> Spectrum:
        return SpectralMixture(self.kernel.num_mixtures)

    def hyperparameters(self, feature_map: FeatureMap) -> dict[str, Tensor]:
        return {
            "weights": self.kernel.mixture_weights,
            "means": self.kernel.mixture_means.squeeze(-2),
            "scales": self.kernel.mixture_scales.squeeze(-2),
        }
