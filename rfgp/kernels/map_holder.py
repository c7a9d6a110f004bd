"""Kernels whose feature map is made at the first call, and undone where that call fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ..features import FeatureMap
from .recipe import MapRecipe


class MapHolder:
    """A kernel with a feature map, which may not be made yet."""

    feature_map: FeatureMap | None
    recipe: MapRecipe | None
    center: Tensor | None

    def made_map(self) -> FeatureMap:
        """The feature map.

        :raises ValueError: where it has not been made yet.
        """
        feature_map = self.feature_map
        if feature_map is None:
            raise ValueError("expected a kernel whose map is made, got one that waits for its first inputs; call it")
        return feature_map


def map_holders(module: torch.nn.Module) -> list[MapHolder]:
    """The kernels inside a module that have maps of their own."""
    return [part for part in module.modules() if isinstance(part, MapHolder)]


@contextmanager
def maps_kept_on_error(module: torch.nn.Module) -> Iterator[None]:
    """Restore the maps of the kernels inside a module where anything is raised, an interrupt included."""
    before = [(part, part.feature_map, part.center) for part in map_holders(module)]
    try:
        yield
    except BaseException:
        for part, feature_map, center in before:
            part.feature_map, part.center = feature_map, center
        raise
