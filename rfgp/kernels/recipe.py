"""Feature maps by name: a method, a width, a degree and a seed, from which a map is made once its inputs are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..features import ComplexToReal, FeatureMap, LinearFeatures, ProductSketch, TensorSketch, TensorSRHT

METHODS = ("rademacher", "gaussian", "tensor_srht", "tensor_srht_stacked", "tensor_sketch")
"""Names of the methods; each may be followed by ":real", ":complex" or ":ctr"."""


@dataclass(frozen=True)
class MapRecipe:
    """How to make a feature map of a polynomial kernel once the number of input columns is known.

    :param method: "linear", or a name in METHODS with an optional ":real", ":complex" or ":ctr" behind it; the default
        is ":real" for tensor_sketch and ":ctr" for the others.
    :param num_features: the number of columns that come out.
    :param degree: the degree of the kernel.
    :param seed: the seed of the weights.
    :raises ValueError: for an unknown method, or an odd number of features for ":ctr".

    >>> MapRecipe("rademacher:ctr", 10, degree=2, seed=0).build(3).num_features
    10
    """

    method: str
    num_features: int
    degree: int
    seed: int

    def __post_init__(self) -> None:
        if self.method == "linear":
            return
        name, _, form = self.method.partition(":")
        if name not in METHODS or form not in ("", "real", "complex", "ctr"):
            raise ValueError(
                f"expected a method among {', '.join(METHODS)}, optionally followed by :real, :complex or :ctr, got "
                f"{self.method!r}; choose one of these, or pass a FeatureMap"
            )
        if self.form == "ctr" and self.num_features % 2:
            raise ValueError(
                f"expected an even num_features for {name}:ctr, whose columns come in pairs, got {self.num_features}; "
                f"use {self.num_features + 1}, or {name}:real"
            )

    @property
    def form(self) -> str:
        """One of "real", "complex" and "ctr"."""
        name, _, form = self.method.partition(":")
        return form or ("real" if name in ("tensor_sketch", "linear") else "ctr")

    @property
    def is_complex(self) -> bool:
        """Whether the map will be complex."""
        return self.form == "complex"

    def build(self, input_dim: int) -> FeatureMap:
        """The feature map for inputs of ``input_dim`` columns; the same seed gives the same map."""
        if self.method == "linear":
            return LinearFeatures(input_dim)
        name, is_complex = self.method.partition(":")[0], self.form != "real"
        width = self.num_features // 2 if self.form == "ctr" else self.num_features
        generator = torch.Generator().manual_seed(self.seed)
        shared: dict[str, Any] = {"is_complex": is_complex, "generator": generator}
        if name in ("rademacher", "gaussian"):
            feature_map: FeatureMap = ProductSketch(input_dim, width, self.degree, name, **shared)
        elif name == "tensor_sketch":
            feature_map = TensorSketch(input_dim, width, self.degree, **shared)
        else:
            variant = "stacked" if name.endswith("stacked") else "upsampled"
            feature_map = TensorSRHT(input_dim, width, self.degree, variant, **shared)
        return ComplexToReal(feature_map) if self.form == "ctr" else feature_map
