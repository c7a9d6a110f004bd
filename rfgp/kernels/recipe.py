"""Feature maps by name: a method, a width and a seed, from which a map is made once its inputs are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import _checks
from ..allocation import optimized_maclaurin, random_maclaurin
from ..features import Maclaurin
from ..features.by_name import FORMS, SKETCHES

_OTHERS = (
    "fourier",
    "fourier_orthogonal",
    "fourier_hadamard",
    "spherical",
    "spherical_orthogonal",
    "spherical_hadamard",
    "optical",
    "random_maclaurin",
    "optimized_maclaurin",
    "linear",
    "series",
)


def method_names() -> tuple[str, ...]:
    """The names of all methods, with those of sketches that were named since."""
    return (*SKETCHES, *_OTHERS)


METHODS = method_names()
"""Names of the methods; each may be followed by ":real", ":complex" or ":ctr". The last two are exact, and real."""

_REAL = ("optical", "linear", "series")


@dataclass(frozen=True)
class MapRecipe:
    """How to make a feature map of a kernel once the number of input columns is known.

    :param method: a name in METHODS with an optional ":real", ":complex" or ":ctr" behind it; the default is ":ctr"
        where a complex form exists (cosines and sines for Fourier features), and ":real" for tensor_sketch.
    :param num_features: the number of columns that come out.
    :param seed: the seed of the weights.
    :param dtype: the dtype of the weights; the default dtype where it is None.
    :raises ValueError: for an unknown method or form, or an odd number of features where columns come in pairs.

    >>> MapRecipe("rademacher", 10, seed=0).form
    'ctr'
    """

    method: str
    num_features: int
    seed: int
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        _checks.instance("method", self.method, str, "the name of a method", f"one of {', '.join(method_names())}")
        _checks.positive_integer("num_features", self.num_features)
        _checks.seed(self.seed)
        form = self.method.partition(":")[2]
        if self.name not in method_names() or form not in ("", *FORMS):
            raise ValueError(
                f"expected a method among {', '.join(method_names())}, optionally followed by :real, :complex or :ctr, "
                f"got {self.method!r}; choose one of these, or pass a FeatureMap"
            )
        if self.name in _REAL and form not in ("", "real"):
            raise ValueError(f"expected a real form of {self.name}, got {self.method!r}; write {self.name}")
        if self.has_pairs and self.num_features % 2:
            raise ValueError(
                f"expected an even num_features for {self.name}:{self.form}, whose columns come in pairs, got "
                f"{self.num_features}; use {self.num_features + 1}"
                + ("" if self.is_fourier else f", or {self.name}:real")
            )

    @property
    def name(self) -> str:
        """The method without its form."""
        return self.method.partition(":")[0]

    @property
    def form(self) -> str:
        """One of "real", "complex" and "ctr"."""
        form = self.method.partition(":")[2]
        if self.name in SKETCHES:
            return form or SKETCHES[self.name].default_form
        return form or ("real" if self.name in _REAL else "ctr")

    @property
    def is_complex(self) -> bool:
        """Whether the map will be complex."""
        return self.form == "complex"

    @property
    def is_fourier(self) -> bool:
        """Whether the real form has cosines and sines."""
        return self.name.startswith(("fourier", "spherical"))

    @property
    def has_pairs(self) -> bool:
        """Whether columns come in pairs."""
        return (self.is_fourier and not self.is_complex) or (self.form == "ctr" and self.name in SKETCHES)


def orthogonality(recipe: MapRecipe) -> str:
    """The structure of the frequencies of Fourier features, which the name of the method ends with."""
    return recipe.name.partition("_")[2] or "independent"


def maclaurin(
    recipe: MapRecipe,
    input_dim: int,
    coefficients: Tensor,
    x: Tensor | None,
    *,
    function: Callable[[Tensor], Tensor] | None = None,
    is_gaussian: bool = False,
) -> Maclaurin:
    """A Maclaurin map as the recipe says, optimised for the scaled inputs x where it says so."""
    generator = torch.Generator().manual_seed(recipe.seed)
    if recipe.name == "random_maclaurin":
        return random_maclaurin(
            input_dim,
            recipe.num_features,
            coefficients,
            sketch="tensor_srht_stacked",
            is_gaussian=is_gaussian,
            form=recipe.form,
            generator=generator,
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
        form=recipe.form,
        generator=generator,
        dtype=recipe.dtype,
    )
