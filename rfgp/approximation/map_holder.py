"""Kernels whose feature map is made at the first call, and undone where that call fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from .._support import checks
from ..features import FeatureMap
from .method import Method


@dataclass(frozen=True)
class MapRecipe:
    """How a feature map is made once the number of input columns is given; a string stands for a method."""

    method: Method
    num_features: int
    seed: int
    dtype: torch.dtype | None = None

    def __init__(self, method: Method | str, num_features: int, seed: int, dtype: torch.dtype | None = None) -> None:
        method = method if isinstance(method, Method) else Method.parse(method)
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


class MapHolder:
    """A kernel with a feature map, which may not be made yet."""

    feature_map: FeatureMap | None
    recipe: MapRecipe | None
    center: Tensor | None

    def made_map(self) -> FeatureMap:
        """The feature map; a ValueError where it has not been made yet."""
        feature_map = self.feature_map
        if feature_map is None:
            raise ValueError("expected a kernel whose map is made, got one that waits for its first inputs; call it")
        return feature_map


class GridHolder:
    """A kernel with a grid of frequencies, of which a state may have another number."""

    orders: Tensor


def map_holders(module: torch.nn.Module) -> list[MapHolder]:
    """The kernels inside a module that have maps of their own."""
    return [part for part in module.modules() if isinstance(part, MapHolder)]


@contextmanager
def maps_kept_on_error(module: torch.nn.Module) -> Iterator[None]:
    """Restore the maps and grids of the kernels inside a module where anything is raised, an interrupt included."""
    before, grids = [], []
    for part in module.modules():
        if isinstance(part, MapHolder):
            before.append((part, part.feature_map, part.center))
        elif isinstance(part, GridHolder):
            grids.append((part, part.orders))
    try:
        yield
    except BaseException:
        for holder, feature_map, center in before:
            holder.feature_map, holder.center = feature_map, center
        for grid, orders in grids:
            grid.orders = orders
        raise
