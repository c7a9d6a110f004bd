"""Checks of what operators act on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _checks


def num_coordinates(w: Any) -> int:
    """The number of coordinates of frequencies (..., d), or raise."""
    if _checks.floating(w, "w").dim() == 0:
        raise ValueError("expected frequencies w of shape (..., d), got a single number; use w.reshape(1, 1)")
    return w.shape[-1]


def num_components(constants: Any) -> int:
    """The number of components of a constant field (T,), or raise."""
    if _checks.floating(constants, "constants").dim() != 1:
        raise ValueError(f"expected constants of shape (T,), got {tuple(constants.shape)}; pass one per component")
    return len(_checks.finite(constants, "constants"))


def check_vector_field(name: str, input_dim: int, components: int, dims: Sequence[int] | None = None) -> int:
    """Return d, or raise where a field on R^d has not a component per coordinate, or d is not in ``dims``."""
    input_dim = _checks.positive_integer("input_dim", input_dim)
    components = _checks.positive_integer("components", components)
    if input_dim != components or (dims is not None and input_dim not in dims):
        space = f"R^{input_dim}" if dims is None else " or ".join(f"R^{d}" for d in dims)
        raise ValueError(
            f"expected a vector field on {space} for {name}, got {components} components of {input_dim} coordinates; "
            "apply it to a field with a component per coordinate"
        )
    return input_dim
