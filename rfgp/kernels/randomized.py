"""Kernels whose parameters are random variables, as Pyro samples them."""

from __future__ import annotations

import copy
from typing import Any

from .._support.gpytorch_names import registries_of


def randomized(module: Any) -> Any:
    """A copy whose ``exact_parts`` are GPyTorch's random modules; those that occur twice stay one."""
    parts: list[Any] = []
    for inner in module.modules():
        parts += [part for part in getattr(inner, "exact_parts", []) if not any(part is other for other in parts)]
    made: dict[int, Any] = {}
    for part in parts:
        random = part.to_random_module()
        made[id(part)] = random
        made |= {id(old): new for old, new in zip(registries_of(part), registries_of(random), strict=True)}
    return copy.deepcopy(module, made)
