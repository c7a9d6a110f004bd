"""Which kernels have feature maps with the same weights, so that their estimates are not independent."""

from __future__ import annotations

import torch

from ..features import ComplexToReal, FeatureMap, FourierSeries, LinearFeatures, Maclaurin
from .family import Family
from .maps import DrawnMap

_WITHOUT_WEIGHTS = (LinearFeatures, FourierSeries, Maclaurin, ComplexToReal)  # of their own


def have_common_weights(left: Family, right: Family) -> bool:
    """Whether random maps of two kernels have the same weights, or were drawn with the same seed."""
    first, second = left.drawn_maps(), right.drawn_maps()
    if _seeds(first) & _seeds(second):
        return True
    pairs = ((a, b) for one in first for a in random_maps(one) for two in second for b in random_maps(two))
    return any(have_same_weights(a, b) for a, b in pairs)


def _seeds(maps: list[DrawnMap]) -> set[int]:
    """The seeds of weights that are as they were drawn at first, or are yet to be drawn."""
    recipes = [
        part.recipe
        for part in maps
        if part.recipe is not None and (part.feature_map is None or not part.feature_map.version)
    ]
    return {recipe.seed for recipe in recipes if not recipe.method.is_exact}


def random_maps(kernel: torch.nn.Module) -> list[FeatureMap]:
    """The maps in a kernel that have weights of their own."""
    return [m for m in kernel.modules() if isinstance(m, FeatureMap) and not isinstance(m, _WITHOUT_WEIGHTS)]


def tied_maps(kernel: torch.nn.Module) -> list[list[FeatureMap]]:
    """The maps in a kernel that have weights of their own, those with the same ones together."""
    groups: list[list[FeatureMap]] = []
    for feature_map in random_maps(kernel):
        group = next((group for group in groups if have_same_weights(group[0], feature_map)), None)
        if group is None:
            groups.append([feature_map])
        else:
            group.append(feature_map)
    return groups


def have_same_weights(a: FeatureMap, b: FeatureMap) -> bool:
    """Whether two maps are one, or have equal weights."""
    return a is b or (type(a) is type(b) and _same_buffers(a, b))


def _same_buffers(a: FeatureMap, b: FeatureMap) -> bool:
    """Whether the weights agree, and are so many, or so far from whole numbers, that chance cannot be the reason."""
    pairs = list(zip(a.buffers(), b.buffers(), strict=False))
    is_chance = sum(x.numel() for x, _ in pairs) < 24 and all(bool((x == x.round()).all()) for x, _ in pairs)
    return not is_chance and all(x.shape == y.shape and bool((x == y.to(x)).all()) for x, y in pairs)
