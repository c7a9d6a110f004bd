"""Maclaurin maps of kernels that are power series of the inner product."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..features import FeatureMap, Maclaurin
from ..features.allocation import optimized_maclaurin, random_maclaurin
from .map_family import unwrap_ctr
from .maps import MapRecipe


def maclaurin(
    recipe: MapRecipe,
    input_dim: int,
    coefficients: Tensor,
    x: Tensor | None,
    *,
    function: Callable[[Tensor], Tensor] | None = None,
    is_gaussian: bool = False,
) -> Maclaurin:
    """A Maclaurin map as the recipe says, optimized for the scaled inputs x where it says so."""
    if recipe.method.name == "random_maclaurin":
        return random_maclaurin(
            input_dim,
            recipe.num_features,
            coefficients,
            sketch="tensor_srht_stacked",
            is_gaussian=is_gaussian,
            form=recipe.method.form,
            generator=recipe.generator,
            dtype=recipe.dtype,
        )
    if x is None:
        raise ValueError(
            "expected train_inputs for optimized_maclaurin, whose features go where the data need them, got none; "
            "pass them to rfgp.approximate"
        )
    return optimized_maclaurin(
        x.reshape(-1, x.shape[-1]),
        recipe.num_features,
        coefficients,
        function=function,
        is_gaussian=is_gaussian,
        form=recipe.method.form,
        generator=recipe.generator,
        dtype=recipe.dtype,
    )


def leaves_out_terms(feature_map: FeatureMap, coefficients: Tensor) -> bool:
    """Whether a Maclaurin map has no columns for some degree of a power series a_0, a_1, ..., (..., p + 1)."""
    inner = unwrap_ctr(feature_map)
    if not isinstance(inner, Maclaurin):
        return False
    is_there = (coefficients.detach() > 0).reshape(-1, coefficients.shape[-1]).any(0)
    return not {degree for degree, has_term in enumerate(is_there.tolist()) if has_term} <= set(inner.num_columns)


def exponential_series() -> Tensor:
    """The coefficients 1/n! of the exponential function, to the largest degree of a sketch."""
    return torch.tensor([1.0 / math.factorial(n) for n in range(21)], dtype=torch.float64)
