"""Operator-valued kernels: scalar Fourier features, whose frequencies also make the factor of the outputs."""

from __future__ import annotations

import math
from typing import ClassVar

from gpytorch.kernels import MaternKernel
from torch import Tensor

from ...features import FeatureMap, Gaussian, Matern, PowerWeighted, RandomFourier, WidenedGaussian
from ...inference import OutputFactor
from ...operators import Operator
from ..derivatives import smoothness
from ..observed import LinearlyObservedKernel
from ..operator_valued import OperatorValuedKernel
from ..recipe import MapRecipe, orthogonality
from ..spectral_density import SpectralDensityKernel
from .base import Family, generator


class OperatorFamily(Family):
    r"""CurlFreeKernel, DivergenceFreeKernel, LinearlyObservedKernel: features :math:`e^{i w^\top x} a(w) b(w)`.

    The law of the frequencies is that of the scalar kernel ("unbounded" features), or one with amplitudes a(w) that
    bound them: the trace measure, which maps made by name have, and the widened one.
    """

    kernel: OperatorValuedKernel
    is_shift_invariant: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("fourier", "fourier_orthogonal")
    default = "fourier_orthogonal"

    @property
    def spectrum(self) -> Gaussian | Matern:
        """The law of the frequencies of scaled inputs of the scalar kernel."""
        scalar = self.kernel.scalar_kernel
        return Matern(scalar.nu) if isinstance(scalar, MaternKernel) else Gaussian()

    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        self.kernel.covariance(input_dim)  # which raises where there is none
        return self.weighted_map(recipe, input_dim, self.kernel.powers(input_dim))

    def weighted_map(self, recipe: MapRecipe, input_dim: int, powers: tuple[int, ...]) -> RandomFourier:
        """A map whose frequencies are weighted with powers of their norm."""
        measure = PowerWeighted(self.spectrum, powers)
        return RandomFourier(
            input_dim,
            recipe.num_features,
            measure,
            orthogonality(recipe),
            generator=generator(recipe),
            dtype=recipe.dtype,
        )

    def expected(self, feature_map: FeatureMap) -> str:
        if isinstance(feature_map, RandomFourier) and not feature_map.is_complex:
            found = feature_map.spectrum
            if isinstance(found, PowerWeighted):
                found = found.spectrum
            if isinstance(found, WidenedGaussian):
                found = Gaussian()
            if found == self.spectrum:
                return ""
        return f"a real RandomFourier with spectrum={self.spectrum}, or PowerWeighted or WidenedGaussian ones of it,"

    def check_method(self, recipe: MapRecipe) -> None:
        super().check_method(recipe)
        if recipe.is_complex:
            raise ValueError(f"expected real features for many outputs, got {recipe.method!r}; write {recipe.name}")

    def inputs(self, feature_map: FeatureMap, x: Tensor) -> Tensor:
        return x / self.kernel.scalar_kernel.lengthscale

    def frequencies(self, feature_map: FeatureMap) -> Tensor:
        """The frequencies of the map in radians per unit of the inputs, (..., m, d), in float64."""
        if not isinstance(feature_map, RandomFourier):
            raise ValueError(f"expected {self.expected(feature_map)} got {type(feature_map).__name__}")
        return feature_map.frequencies().double() / self.kernel.scalar_kernel.lengthscale.double()

    def check_operator(self, operator: Operator, input_dim: int) -> None:
        """Raise a ValueError where the process has too few derivatives for a differential operator."""
        if smoothness(self.kernel.scalar_kernel) < math.inf and operator.is_differential:
            LinearlyObservedKernel(self.kernel, [operator]).covariance(input_dim)

    def output_factor(self, feature_map: FeatureMap, symbol: Tensor | None = None) -> OutputFactor:
        """The factor of the outputs, or of what a Fourier multiplier with a symbol (..., m, T', T) makes of them."""
        b = self.kernel.factor(self.frequencies(feature_map))
        if symbol is not None:
            b = symbol @ b.to(symbol.dtype)
        return OutputFactor.spectral(b)

    def applicable(self, input_dim: int) -> tuple[str, ...]:
        return self.methods


class SpectralDensityFamily(OperatorFamily):
    """SpectralDensityKernel, whose frequencies have the trace measure of its density."""

    kernel: SpectralDensityKernel
    methods: ClassVar[tuple[str, ...]] = ("fourier",)
    default = "fourier"

    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        return RandomFourier(
            input_dim, recipe.num_features, self.kernel.measure, generator=generator(recipe), dtype=recipe.dtype
        )

    def check_operator(self, operator: Operator, input_dim: int) -> None:
        """Nothing is known about the derivatives of the process."""

    def expected(self, feature_map: FeatureMap) -> str:
        is_own = isinstance(feature_map, RandomFourier) and feature_map.spectrum == self.kernel.measure
        return "" if is_own and not feature_map.is_complex else "a real RandomFourier with the kernel's measure"


__all__ = ["OperatorFamily", "SpectralDensityFamily"]
