"""Dot-product kernels beyond polynomials, and the kernel of optical features."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ...features import FeatureMap, Maclaurin, OpticalFeatures
from ..dot_product import DotProductKernel
from ..exponential import ExponentialDotProductKernel
from ..optical import OpticalKernel
from ..recipe import MapRecipe, maclaurin
from .base import Family, generator, leaves_out_terms
from .stationary import exponential_series


class DotProductFamily(Family):
    """DotProductKernel, by a map for every term of its series."""

    kernel: DotProductKernel
    methods: ClassVar = ("random_maclaurin", "optimized_maclaurin")
    default = "random_maclaurin"

    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        return maclaurin(recipe, input_dim, self.kernel.coefficients, x)

    def expected(self, feature_map: FeatureMap) -> str:
        is_dot_product = isinstance(feature_map, Maclaurin) and not feature_map.is_gaussian
        return "" if is_dot_product else "a Maclaurin map of a dot-product kernel"

    def is_truncated(self, feature_map: FeatureMap) -> bool:
        return leaves_out_terms(feature_map, self.kernel.coefficients)


class ExponentialFamily(DotProductFamily):
    """ExponentialDotProductKernel, by a map for every term of its series up to degree 20."""

    kernel: ExponentialDotProductKernel
    truncated = DotProductFamily.methods

    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        scaled = None if x is None else (x / self.kernel.lengthscale).detach()
        return maclaurin(recipe, input_dim, exponential_series(), scaled, function=torch.exp)

    def inputs(self, feature_map: FeatureMap, x: Tensor) -> Tensor:
        return x / self.kernel.lengthscale

    def is_truncated(self, feature_map: FeatureMap) -> bool:
        return True  # the series does not end


class OpticalFamily(Family):
    """OpticalKernel, by simulated optical features."""

    kernel: OpticalKernel
    methods: ClassVar = ("optical",)
    default = "optical"
    in_products = "optical"

    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        return OpticalFeatures(
            input_dim, recipe.num_features, self.kernel.exponent, generator=generator(recipe), dtype=recipe.dtype
        )

    def expected(self, feature_map: FeatureMap) -> str:
        if isinstance(feature_map, OpticalFeatures) and feature_map.exponent == self.kernel.exponent:
            return ""
        return f"OpticalFeatures with exponent={self.kernel.exponent}"
