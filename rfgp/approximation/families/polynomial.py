"""Polynomial and linear kernels."""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import LinearKernel, PolynomialKernel
from torch import Tensor

from ..._support import checks
from ...features import FeatureMap, LinearFeatures, Maclaurin, PolynomialSketch, SphericalFourier, polynomial_sketch
from ...features.sketch_registry import SKETCHES
from ..family import approximates
from ..map_family import MapFamily, unwrap_ctr
from ..maps import MapRecipe
from ..method import FeatureMethod
from ..power_series import leaves_out_terms, maclaurin


@approximates(PolynomialKernel)
class PolynomialFamily(MapFamily):
    r"""PolynomialKernel, :math:`(x^\top y + \nu)^p`; spherical maps need unit inputs and a fixed offset >= 1."""

    kernel: PolynomialKernel
    settings = ("power",)
    default = "tensor_srht"
    in_products = "tensor_srht"

    @property
    def methods(self) -> tuple[str, ...]:
        spherical = ("spherical", "spherical_orthogonal", "spherical_hadamard")
        return (*SKETCHES, *spherical, "random_maclaurin", "optimized_maclaurin")

    @property
    def degree(self) -> int:
        """The power of the kernel."""
        return checks.positive_integer("power", self.kernel.power, largest=20)

    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        if recipe.method.name in SKETCHES:
            return polynomial_sketch(
                recipe.method.name,
                recipe.method.form,
                input_dim + 1,
                recipe.num_features,
                self.degree,
                recipe.generator,
                recipe.dtype,
            )
        if recipe.method.is_maclaurin:
            return maclaurin(recipe, input_dim, self._coefficients().detach().reshape(-1, self.degree + 1)[0], x)
        offset = float(self.kernel.offset.detach().reshape(-1)[0])
        if offset < 1.0:
            raise ValueError(
                f"expected an offset of at least 1 for {recipe.method.name}, got {offset:.4g}; use a sketch"
            )
        a = math.sqrt(2.0 * (1.0 + offset))
        return SphericalFourier(
            input_dim,
            recipe.num_features,
            self.degree,
            a,
            recipe.method.structure,
            recipe.is_complex,
            generator=recipe.generator,
            dtype=recipe.dtype,
        )

    def _coefficients(self) -> Tensor:
        """The coefficients of the Maclaurin series, (..., p + 1)."""
        offset, degrees = self.kernel.offset, range(self.degree + 1)
        return torch.cat([math.comb(self.degree, n) * offset ** (self.degree - n) for n in degrees], dim=-1)

    def mismatch(self, feature_map: FeatureMap) -> str:
        is_polynomial = isinstance(feature_map, PolynomialSketch | LinearFeatures | SphericalFourier)
        if is_polynomial and feature_map.degree == self.degree:
            return ""
        if isinstance(feature_map, Maclaurin) and not feature_map.is_gaussian:
            return "" if len(feature_map.coefficients) == self.degree + 1 else f"{self.degree + 1} coefficients"
        return f"a polynomial feature map of degree {self.degree}"

    def inputs(self, feature_map: FeatureMap, x: Tensor) -> Tensor:
        if not self.extra_columns(feature_map):
            return x
        root = self.kernel.offset.sqrt().unsqueeze(-1)
        batch = torch.broadcast_shapes(x.shape[:-2], root.shape[:-2])
        return torch.cat([x.expand(*batch, *x.shape[-2:]), root.expand(*batch, x.shape[-2], 1)], dim=-1)

    def hyperparameters(self, feature_map: FeatureMap) -> dict[str, Tensor]:
        return {"coefficients": self._coefficients()} if isinstance(unwrap_ctr(feature_map), Maclaurin) else {}

    def is_truncated(self, feature_map: FeatureMap) -> bool:
        return leaves_out_terms(feature_map, self._coefficients())

    def extra_columns(self, feature_map: FeatureMap) -> int:
        return int(isinstance(unwrap_ctr(feature_map), PolynomialSketch | LinearFeatures))

    def scale(self, feature_map: FeatureMap) -> float:
        if not isinstance(feature_map, SphericalFourier):
            return 1.0
        offset = self.kernel.offset.detach()
        made_for = 0.5 * feature_map.a**2 - 1.0
        if not bool(((offset - made_for).abs() <= 1e-4 * made_for).all()):
            raise ValueError(
                f"expected the offset {made_for:.6g} that the spherical features were made for, got "
                f"{float(offset.reshape(-1)[0]):.6g}; approximate the kernel again"
            )
        return (1.0 + made_for) ** (0.5 * self.degree)


@approximates(LinearKernel)
class LinearFamily(MapFamily):
    r"""LinearKernel: :math:`v\, x^\top y`, whose exact features are the scaled inputs."""

    kernel: LinearKernel
    num_exact_features = 1
    default = "linear"
    in_products = "tensor_srht"

    @property
    def methods(self) -> tuple[str, ...]:
        return ("linear", *SKETCHES)

    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        if recipe.method.name == "linear":
            return LinearFeatures(input_dim)
        return polynomial_sketch(
            recipe.method.name, recipe.method.form, input_dim, recipe.num_features, 1, recipe.generator, recipe.dtype
        )

    def mismatch(self, feature_map: FeatureMap) -> str:
        is_polynomial = isinstance(feature_map, PolynomialSketch | LinearFeatures)
        return "" if is_polynomial and feature_map.degree == 1 else "a polynomial feature map of degree 1"

    def inputs(self, feature_map: FeatureMap, x: Tensor) -> Tensor:
        return x * self.kernel.variance.sqrt()

    def num_exact_columns(self, method: FeatureMethod, input_dim: int | None) -> int | None:
        return input_dim if method.name == "linear" else None
