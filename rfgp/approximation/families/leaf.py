"""Kernels with feature maps of their own, or with features already, as parts of a tree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from ...features import FeatureMap
from ..family import Family, approximates
from ..feature_kernel import FeatureKernel
from ..map_family import MapFamily
from ..map_holder import MapRecipe
from ..method import Method
from ..random_feature_kernel import RandomFeatureKernel
from ..reference_tensor import reference_tensor
from ..request import Request


class LeafFamily(MapFamily):
    """A family whose kernels become :class:`rfgp.approximation.FeatureKernel`."""

    num_exact_features: ClassVar[int | None] = None
    """The number of features of an exact default method, or 1 where the inputs tell; None where it approximates."""

    def approximate(self, request: Request) -> RandomFeatureKernel:
        if request.feature_map is not None:
            return self._with_map(request.feature_map, request)
        selected = request.select(self.kernel)
        columns = self.num_columns(selected.input_dim)
        if self.is_ranked and request.method is None and request.x is not None and self.exact_columns(request) is None:
            chosen = Method.parse(request.choose(self.kernel, request.num_features, request.x))
            selected = replace(selected, method=chosen)
        recipe = MapRecipe(self.method(selected), request.num_features, next(request.seeds))
        self.check_method(recipe.method)
        if columns is None:
            return FeatureKernel(self.kernel, recipe)
        feature_map = self.make(recipe, columns, selected.x, reference_tensor(self.kernel, request.like))
        made = FeatureKernel(self.kernel, feature_map, self.center(recipe, selected.x))
        made.recipe = recipe
        return made

    @property
    def has_features(self) -> bool:
        return self.num_exact_features is not None

    def with_features(self) -> RandomFeatureKernel:
        if self.num_exact_features is None:
            return super().with_features()
        return FeatureKernel(self.kernel, MapRecipe(Method.parse(self.default), self.num_exact_features, 0))

    def _with_map(self, feature_map: FeatureMap, request: Request) -> FeatureKernel:
        made = FeatureKernel(self.kernel, feature_map)  # which raises where the map is another kernel's
        num_features, columns = request.num_features, self.num_columns(request.select(self.kernel).input_dim)
        if columns not in (None, feature_map.input_dim):
            raise ValueError(
                f"expected a map of {columns} columns as the inputs of the kernel have, got a "
                f"{type(feature_map).__name__} of {feature_map.input_dim}; make the two agree"
            )
        if feature_map.num_features != num_features:
            raise ValueError(
                f"expected num_features={feature_map.num_features}, the columns of the {type(feature_map).__name__} "
                f"given as method, got {num_features}; make the two agree"
            )
        return made


@approximates(RandomFeatureKernel)
class ApproximatedFamily(Family):
    """A kernel with features, which stays as it is."""

    kernel: RandomFeatureKernel

    def approximate(self, request: Request) -> Any:
        return self.kernel

    def with_landmarks(self, request: Request) -> Any:
        return self.kernel

    def on_grid(self, request: Request) -> Any:
        return self.kernel

    @property
    def is_scalar(self) -> bool:
        return not self.kernel.has_output_factor

    @property
    def is_approximated(self) -> bool:
        return True

    @property
    def has_features(self) -> bool:
        return True

    def with_features(self) -> Any:
        return self.kernel
