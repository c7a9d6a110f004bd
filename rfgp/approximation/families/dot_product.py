"""Dot-product kernels beyond polynomials, and the kernel of optical features."""

from __future__ import annotations

import torch
from torch import Tensor

from ...features import FeatureMap, Maclaurin, OpticalFeatures
from ...kernels.dot_product import DotProductKernel, ExponentialDotProductKernel
from ...kernels.optical import OpticalKernel
from ..family import approximates
from ..map_family import MapFamily
from ..maps import MapRecipe
from ..power_series import exponential_series, leaves_out_terms, maclaurin


@approximates(DotProductKernel)
class DotProductFamily(MapFamily):
    """DotProductKernel, by a map for every term of its series."""

    kernel: DotProductKernel
    methods = ("random_maclaurin", "optimized_maclaurin")
    default = "random_maclaurin"

    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        return maclaurin(recipe, input_dim, self.kernel.coefficients, x)

    def mismatch(self, feature_map: FeatureMap) -> str:
        is_dot_product = isinstance(feature_map, Maclaurin) and not feature_map.is_gaussian
        return "" if is_dot_product else "a Maclaurin map of a dot-product kernel"

    def is_truncated(self, feature_map: FeatureMap) -> bool:
        return leaves_out_terms(feature_map, self.kernel.coefficients)


@approximates(ExponentialDotProductKernel)
class ExponentialFamily(DotProductFamily):
    """ExponentialDotProductKernel, by a map for every term of its series up to degree 20."""

    kernel: ExponentialDotProductKernel
    truncated = DotProductFamily.methods

    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        scaled = None if x is None else (x / self.kernel.lengthscale).detach()
        return maclaurin(recipe, input_dim, exponential_series(), scaled, function=torch.exp)

    def is_truncated(self, feature_map: FeatureMap) -> bool:
        return True  # the series does not end


@approximates(OpticalKernel)
class OpticalFamily(MapFamily):
    """OpticalKernel, by simulated optical features."""

    kernel: OpticalKernel
    settings = ("exponent",)
    methods = ("optical",)
    default = "optical"
    in_products = "optical"

    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        return OpticalFeatures(
            input_dim, recipe.num_features, self.kernel.exponent, generator=recipe.generator, dtype=recipe.dtype
        )

    def mismatch(self, feature_map: FeatureMap) -> str:
        if isinstance(feature_map, OpticalFeatures) and feature_map.exponent == self.kernel.exponent:
            return ""
        return f"OpticalFeatures with exponent={self.kernel.exponent}"
