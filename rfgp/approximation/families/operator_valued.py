"""Operator-valued kernels: scalar Fourier features, whose frequencies also make the factor of the outputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from gpytorch.kernels import Kernel, MaternKernel
from linear_operator import to_dense
from torch import Tensor

from ..._support import checks
from ...features import FeatureMap, Gaussian, Matern, PowerWeighted, RandomFourier, WidenedGaussian
from ...functionals import Operator
from ...inference import OutputFactor
from ...kernels.derivatives import smoothness
from ...kernels.observed import LinearlyObservedKernel
from ...kernels.operator_valued import OperatorValuedKernel
from ...kernels.spectral_density import SpectralDensityKernel
from ..family import approximates, family
from ..field_moments import covariance_of_fields
from ..map_family import MapFamily, checked_columns, random_fourier
from ..maps import MapRecipe
from ..method import FeatureMethod
from ..request import Request
from ..spectral_factor import SpectralFactor
from ..spectral_weights import GridFrequencies, no_density
from ..values import accurate_blocks
from .field_grid import FieldGridFamily
from .grid import SpectralGrid, draw_grid

_LENGTHSCALES = 8.0
"""How far derivatives of kernels reach: those of copies cancel, as far as they are not cut off."""


@approximates(OperatorValuedKernel)
class OperatorFamily(MapFamily):
    r"""Fields such as CurlFreeKernel and DivergenceFreeKernel: features :math:`e^{i w^\top x} a(w) b(w)`.

    The amplitudes a(w) are one ("unbounded"), or bound the features: the trace measure and the widened one.
    """

    kernel: OperatorValuedKernel
    is_shift_invariant: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("fourier", "fourier_orthogonal", "fourier_qmc")
    default = "fourier_orthogonal"
    is_ranked = False
    has_output_factor = True

    @property
    def is_scalar(self) -> bool:
        return False

    @property
    def measure_kernel(self) -> Kernel | None:
        return self.kernel.scalar_kernel

    def num_columns(self, input_dim: int | None) -> int | None:
        return checked_columns(self.kernel.scalar_kernel.ard_num_dims, input_dim)

    @property
    def spectrum(self) -> Gaussian | Matern:
        """The spectral density of the scalar kernel, for scaled inputs."""
        scalar = self.kernel.scalar_kernel
        return Matern(scalar.nu) if isinstance(scalar, MaternKernel) else Gaussian()

    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        self.kernel.covariance(input_dim)  # which raises where there is none
        return self.weighted_map(recipe, input_dim, self.kernel.powers(input_dim))

    def weighted_map(self, recipe: MapRecipe, input_dim: int, powers: tuple[int, ...]) -> RandomFourier:
        """A map whose frequencies are weighted with powers of their norm."""
        return random_fourier(recipe, input_dim, PowerWeighted(self.spectrum, powers))

    def mismatch(self, feature_map: FeatureMap) -> str:
        if isinstance(feature_map, RandomFourier) and not feature_map.is_complex:
            spectrum = feature_map.spectrum
            if isinstance(spectrum, PowerWeighted):
                spectrum = spectrum.spectrum
            if isinstance(spectrum, WidenedGaussian):
                spectrum = Gaussian()
            if spectrum == self.spectrum:
                return ""
        return f"a real RandomFourier with spectrum={self.spectrum}, or PowerWeighted or WidenedGaussian ones of it,"

    def check_method(self, method: FeatureMethod) -> None:
        super().check_method(method)
        if method.is_complex:
            raise ValueError(f"expected real features for many outputs, got {str(method)!r}; write {method.name}")

    def inputs(self, feature_map: FeatureMap, x: Tensor) -> Tensor:
        return x / self.kernel.scalar_kernel.lengthscale

    def frequencies(self, feature_map: FeatureMap) -> Tensor:
        """The frequencies of the map in radians per unit of the inputs, (..., m, d), in float64."""
        if not isinstance(feature_map, RandomFourier):
            raise ValueError(f"expected {self.mismatch(feature_map)} got {type(feature_map).__name__}")
        return feature_map.frequencies().double() / self.kernel.scalar_kernel.lengthscale.double()

    def check_operator(self, operator: Operator, input_dim: int) -> None:
        """Raise a ValueError where the process has too few derivatives for a differential operator."""
        if smoothness(self.kernel.scalar_kernel) < math.inf and operator.is_differential:
            LinearlyObservedKernel(self.kernel, [operator]).covariance(input_dim)

    def operator_factor(self, feature_map: FeatureMap, operator: Operator | None = None) -> OutputFactor:
        return OutputFactor.spectral(self.factor(self.frequencies(feature_map), operator))

    def factor(self, w: Tensor, operator: Operator | None = None) -> Tensor:
        """The factor b of the kernel, or of what an operator makes of the field, at frequencies (..., m, d)."""
        if operator is None:
            return self.kernel.factor(w)
        checks.instance("operator", operator, Operator, "an operator of rfgp.functionals", "such as Divergence()")
        self.check_operator(operator, w.shape[-1])
        symbol = operator.symbol(w, self.kernel.num_outputs(w.shape[-1]))
        return symbol @ self.kernel.factor(w).to(symbol.dtype)

    def draw_grid(self, request: Request) -> SpectralGrid:
        return draw_grid(self.kernel, request, FieldGridFamily)

    def spectral_factor(self, at: GridFrequencies, operator: Operator | None = None) -> SpectralFactor:
        scalar_family: Any = family(self.kernel.scalar_kernel)
        scalar = scalar_family.spectral_weights(at)
        factor = self.factor(at.seen, operator)
        is_zero = (at.seen == 0.0).all(-1)[:, None, None]
        factor = torch.where(is_zero & factor.isnan(), 0.0, factor)  # potentials are known up to a constant
        reach = _LENGTHSCALES * float(self.kernel.scalar_kernel.lengthscale.detach().max())
        at_zero = self.factor(at.zero.seen, operator)
        at_zero = torch.where(at_zero.isnan(), 0.0, at_zero)
        of_zero = scalar_family.spectral_weights(at.zero).values
        aliased = (scalar_family.sampled_density(at.zero) - of_zero)[..., 0]  # which the weight of zero lacks
        product = (at_zero @ at_zero.mH).squeeze(-3)
        product = product.real if product.is_complex() else product
        total = accurate_blocks(self.kernel, at.copies_within(reach)).sum(-3) - aliased[..., None, None] * product
        return SpectralFactor(scalar.roots(at)[..., None, None] * factor, total)

    def map_moments(self, feature_map: FeatureMap, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor] | None:
        variance = covariance_of_fields(feature_map, self.kernel, self.kernel, x, y)
        return None if variance is None else (to_dense(self.kernel.forward(x, y)), variance)


@approximates(LinearlyObservedKernel)
class ObservedFamily(OperatorFamily):
    """LinearlyObservedKernel; observations of scales and sums are scales and sums of observations."""

    kernel: LinearlyObservedKernel
    settings = ("operators",)

    @classmethod
    def resolved(cls, kernel: LinearlyObservedKernel) -> Kernel:
        return kernel.distributed()

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        """Those of the scalar kernel: the covariance of tasks is in the output factor."""
        parameters: Iterator[torch.nn.Parameter] = self.kernel.scalar_kernel.parameters()
        return parameters


@approximates(SpectralDensityKernel)
class SpectralDensityFamily(OperatorFamily):
    """SpectralDensityKernel, whose frequencies have the trace measure of its density."""

    kernel: SpectralDensityKernel
    methods: ClassVar[tuple[str, ...]] = ("fourier",)
    default = "fourier"
    settings = ("measure",)

    @property
    def measure_kernel(self) -> Kernel | None:
        return None

    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        return random_fourier(recipe, input_dim, self.kernel.measure)

    def draw_grid(self, request: Request) -> SpectralGrid:
        raise no_density(self.kernel)

    def check_operator(self, operator: Operator, input_dim: int) -> None:
        """Nothing is known about the derivatives of the process."""

    def mismatch(self, feature_map: FeatureMap) -> str:
        is_own = isinstance(feature_map, RandomFourier) and feature_map.spectrum == self.kernel.measure
        return "" if is_own and not feature_map.is_complex else "a real RandomFourier with the kernel's measure"
