"""Shift-invariant kernels."""

from __future__ import annotations

import abc
import math
from typing import ClassVar

import torch
from gpytorch.kernels import MaternKernel, RQKernel, SpectralMixtureKernel
from torch import Tensor

from ...features import (
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
from ..laplace import LaplaceKernel
from ..recipe import MapRecipe, maclaurin, orthogonality
from ..skewed_chi2 import SkewedChiSquaredKernel
from .base import Family, generator

_ISOTROPIC = ("fourier", "fourier_orthogonal", "fourier_hadamard")


class FourierFamily(Family):
    """Kernels with a spectral law."""

    is_shift_invariant: ClassVar[bool] = True

    @property
    @abc.abstractmethod
    def spectrum(self) -> Spectrum:
        """The law of the frequencies of scaled inputs."""

    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        return RandomFourier(
            input_dim,
            recipe.num_features,
            self.spectrum,
            orthogonality(recipe),
            recipe.is_complex,
            generator=generator(recipe),
            dtype=recipe.dtype,
        )

    def expected(self, feature_map: FeatureMap) -> str:
        if isinstance(feature_map, RandomFourier):
            found, wanted = feature_map.spectrum, self.spectrum
            if found == wanted or (type(found) is type(wanted) and self.law(feature_map)):
                return ""
        return f"RandomFourier with spectrum={self.spectrum}"


class IsotropicFamily(FourierFamily):
    """MaternKernel and RQKernel, with a lengthscale."""

    methods: ClassVar = _ISOTROPIC
    default = "fourier_orthogonal"
    in_products = "fourier_orthogonal"

    @property
    def spectrum(self) -> Spectrum:
        return Matern(self.kernel.nu) if isinstance(self.kernel, MaternKernel) else RationalQuadratic()

    def inputs(self, feature_map: FeatureMap, x: Tensor) -> Tensor:
        return x / self.kernel.lengthscale

    def law(self, feature_map: FeatureMap) -> dict[str, Tensor]:
        return {"alpha": self.kernel.alpha.squeeze(-1)} if isinstance(self.kernel, RQKernel) else {}


class GaussianFamily(FourierFamily):
    r"""RBFKernel: :math:`\exp(-\|x - y\|^2/(2 \ell^2))`, by Fourier or Maclaurin features.

    Maclaurin features are best near the origin: they see inputs from which the mean of the training inputs has been
    subtracted, which leaves the kernel as it is.
    """

    methods: ClassVar = (*_ISOTROPIC, "random_maclaurin", "optimized_maclaurin")
    default = "fourier_orthogonal"
    in_products = "fourier_orthogonal"
    truncated = ("random_maclaurin", "optimized_maclaurin")

    @property
    def spectrum(self) -> Spectrum:
        return Gaussian()

    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        if not recipe.name.endswith("maclaurin"):
            return super().build(recipe, input_dim, x)
        scaled = None if x is None else ((x - x.mean(-2)) / self.kernel.lengthscale).detach()
        return maclaurin(recipe, input_dim, exponential_series(), scaled, is_gaussian=True)

    def expected(self, feature_map: FeatureMap) -> str:
        if isinstance(feature_map, Maclaurin) and feature_map.is_gaussian:
            return ""
        return super().expected(feature_map)

    def inputs(self, feature_map: FeatureMap, x: Tensor) -> Tensor:
        return x / self.kernel.lengthscale

    def is_truncated(self, feature_map: FeatureMap) -> bool:
        return isinstance(feature_map, Maclaurin)  # the series does not end

    def center(self, recipe: MapRecipe, x: Tensor | None) -> Tensor | None:
        return x.mean(-2) if x is not None and recipe.name.endswith("maclaurin") else None


class LaplaceFamily(FourierFamily):
    """LaplaceKernel, whose frequencies have independent Cauchy entries."""

    kernel: LaplaceKernel
    methods: ClassVar = ("fourier",)
    default = "fourier"
    in_products = "fourier"

    @property
    def spectrum(self) -> Spectrum:
        return Laplace()

    def inputs(self, feature_map: FeatureMap, x: Tensor) -> Tensor:
        return x / self.kernel.lengthscale


class SkewedChiSquaredFamily(FourierFamily):
    """SkewedChiSquaredKernel, shift-invariant in log(x + c)."""

    kernel: SkewedChiSquaredKernel
    is_shift_invariant: ClassVar[bool] = False
    methods: ClassVar = ("fourier",)
    default = "fourier"
    in_products = "fourier"

    @property
    def spectrum(self) -> Spectrum:
        return HyperbolicSecant()

    def inputs(self, feature_map: FeatureMap, x: Tensor) -> Tensor:
        return self.kernel.log_inputs(x)


class SpectralMixtureFamily(FourierFamily):
    """SpectralMixtureKernel, all of whose parameters belong to the spectral law."""

    kernel: SpectralMixtureKernel
    methods: ClassVar = ("fourier",)
    default = "fourier"
    in_products = "fourier"

    @property
    def spectrum(self) -> Spectrum:
        return SpectralMixture(self.kernel.num_mixtures)

    def law(self, feature_map: FeatureMap) -> dict[str, Tensor]:
        return {
            "weights": self.kernel.mixture_weights,
            "means": self.kernel.mixture_means.squeeze(-2),
            "scales": self.kernel.mixture_scales.squeeze(-2),
        }


def exponential_series() -> Tensor:
    """The coefficients 1/n! of the exponential function, to the largest degree of a sketch."""
    return torch.tensor([1.0 / math.factorial(n) for n in range(21)], dtype=torch.float64)
