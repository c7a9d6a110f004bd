"""Which grids of frequencies have more features than dense matrices are formed for."""

from __future__ import annotations

from typing import Any

from ..noise import NoiseModel

MOST_DENSE = 4001
"""More features of one output on a grid have no dense matrices."""


def is_wide(kernel: Any, noise: NoiseModel | None) -> bool:
    """Whether a kernel is one grid of one real output with more features than dense matrices are formed for."""
    if noise is None or noise.num_systems * noise.num_outputs > 1 or noise.is_complex:
        return False
    is_plain = not kernel.has_output_factor and not kernel.batch_shape and kernel.frequency_grid is not None
    return is_plain and kernel.num_scalar_features > MOST_DENSE


def check_not_wide(kernel: Any, noise: NoiseModel | None, what: str) -> None:
    """Raise a ValueError where something needs the dense matrices that a wide grid has not."""
    if is_wide(kernel, noise):
        raise refused(what, kernel.num_scalar_features)


def refused(what: str, num_features: int) -> ValueError:
    """What to raise for so many features."""
    return ValueError(
        f"expected at most {MOST_DENSE} features of a Fourier grid for {what}, got {num_features}; approximate the "
        "kernel with fewer features"
    )
