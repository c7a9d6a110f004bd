"""The weights behind the features of a kernel, as modules beside it: feature maps, and what marks where they belong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .._support import checks
from ..features import FeatureMap
from .method import FeatureMethod


@dataclass(frozen=True)
class MapRecipe:
    """How a feature map is made once the number of input columns is given; a string stands for a method."""

    method: FeatureMethod
    num_features: int
    seed: int
    dtype: torch.dtype | None = None

    def __init__(
        self, method: FeatureMethod | str, num_features: int, seed: int, dtype: torch.dtype | None = None
    ) -> None:
        method = method if isinstance(method, FeatureMethod) else FeatureMethod.parse(method)
        num_features = checks.positive_integer("num_features", num_features)
        checks.seed(seed)
        if method.has_pairs and num_features % 2:
            raise ValueError(
                f"expected an even num_features for {method.name}:{method.form}, whose columns come in pairs, got "
                f"{num_features}; use {num_features + 1}" + ("" if method.is_fourier else f", or {method.name}:real")
            )
        for name, value in (("method", method), ("num_features", num_features), ("seed", seed), ("dtype", dtype)):
            object.__setattr__(self, name, value)

    @property
    def is_complex(self) -> bool:
        """Whether the map will be complex."""
        return self.method.is_complex

    @property
    def generator(self) -> torch.Generator:
        """A new generator with the seed of the recipe."""
        return torch.Generator().manual_seed(self.seed)

    def columnwise(self) -> MapRecipe | None:
        """The recipe for the same weights in unbiased columns; None where there are none."""
        if not self.method.has_unbiased_columns:
            return None
        width = self.num_features // 2 if self.method.has_pairs else self.num_features
        return replace(self, method=self.method.columnwise, num_features=width)


class DrawnMap(torch.nn.Module):
    """The feature map of a kernel, which may not be made yet, and the point that is subtracted from its inputs.

    :param source: the map, or a recipe from which it is made at the first call.
    :param center: a point (d,), for shift-invariant kernels.
    """

    center: Tensor | None

    def __init__(self, source: FeatureMap | MapRecipe, center: Tensor | None = None) -> None:
        wanted = (FeatureMap, MapRecipe)
        checks.instance("feature_map", source, wanted, "a FeatureMap or a MapRecipe", "see rfgp.features")
        if center is not None and checks.finite(checks.floating(center, "center"), "center").dim() != 1:
            raise ValueError(f"expected a center of shape (d,), got {tuple(center.shape)}; pass one point")
        super().__init__()
        self.recipe = source if isinstance(source, MapRecipe) else None
        self.feature_map = source if isinstance(source, FeatureMap) else None
        self.num_columns = 0
        """The number of columns of the kernel's inputs, zero before the map is made."""
        self.register_buffer("center", None if center is None else center.detach().clone())

    def made_map(self) -> FeatureMap:
        """The feature map; a ValueError where it has not been made yet."""
        feature_map = self.feature_map
        if feature_map is None:
            raise ValueError("expected a kernel whose map is made, got one that waits for its first inputs; call it")
        return feature_map

    @property
    def source(self) -> FeatureMap | MapRecipe:
        """The map, or the recipe where there is none yet."""
        if self.feature_map is not None:
            return self.feature_map
        if self.recipe is None:
            raise ValueError("expected a recipe for the feature map, got none; pass a FeatureMap or a MapRecipe")
        return self.recipe

    def get_extra_state(self) -> Tensor:
        """The number of input columns, zero before the map is made."""
        return torch.tensor([0 if self.feature_map is None else self.num_columns])

    def set_extra_state(self, state: Tensor) -> None:
        """Take over the number of input columns."""
        self.num_columns = int(state.flatten()[0])


class OwnMaps(torch.nn.Module):
    """Nothing was drawn: the kernel has features of its own, or exact ones that need no weights."""


class WholeMaps(torch.nn.Module):
    """The base class of weights for a kernel whose parts have none of their own; the registry says what they do."""


class SharedMap(WholeMaps):
    """One map for all terms of a sum of fields, whose features share the measure of their frequencies."""

    def __init__(self, drawn: DrawnMap) -> None:
        super().__init__()
        self.drawn = drawn


class ResizedBuffers(torch.nn.Module):
    """Weights of which a state may have another number."""

    orders: Tensor


def drawn_maps(module: torch.nn.Module) -> list[DrawnMap]:
    """The feature maps inside a module that were drawn for kernels."""
    return [part for part in module.modules() if isinstance(part, DrawnMap)]


@contextmanager
def maps_kept_on_error(module: torch.nn.Module) -> Iterator[None]:
    """Restore the maps and grids of the kernels inside a module where anything is raised, an interrupt included."""
    before, grids = [], []
    for part in module.modules():
        if isinstance(part, DrawnMap):
            before.append((part, part.feature_map, part.center, part.num_columns))
        elif isinstance(part, ResizedBuffers):
            grids.append((part, part.orders))
    try:
        yield
    except BaseException:
        for drawn, feature_map, center, num_columns in before:
            drawn.feature_map, drawn.center, drawn.num_columns = feature_map, center, num_columns
        for grid, orders in grids:
            grid.orders = orders
        raise
