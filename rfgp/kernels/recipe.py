"""A method, a width and a seed, from which a feature map is made once its inputs are known."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .. import _checks
from .method import Method


@dataclass(frozen=True)
class MapRecipe:
    """How to make a feature map of a kernel once the number of input columns is known.

    :param method: a :class:`Method`, or a string such as "tensor_srht:ctr" that stands for one.
    :param num_features: the number of columns that come out.
    :param seed: the seed of the weights.
    :param dtype: the dtype of the weights; default: PyTorch's default dtype.
    :raises ValueError: for an unknown method or form, or an odd number of features where columns come in pairs.

    >>> MapRecipe("rademacher", 10, seed=0).method.form
    'ctr'
    """

    method: Method
    num_features: int
    seed: int
    dtype: torch.dtype | None = None

    def __init__(self, method: Method | str, num_features: int, seed: int, dtype: torch.dtype | None = None) -> None:
        known = method if isinstance(method, Method) else Method.parse(method)
        num_features = _checks.positive_integer("num_features", num_features)
        _checks.seed(seed)
        if known.has_pairs and num_features % 2:
            raise ValueError(
                f"expected an even num_features for {known.name}:{known.form}, whose columns come in pairs, got "
                f"{num_features}; use {num_features + 1}" + ("" if known.is_fourier else f", or {known.name}:real")
            )
        for name, value in (("method", known), ("num_features", num_features), ("seed", seed), ("dtype", dtype)):
            object.__setattr__(self, name, value)

    @property
    def is_complex(self) -> bool:
        """Whether the map will be complex."""
        return self.method.is_complex

    @property
    def generator(self) -> torch.Generator:
        """A new generator with the seed of the recipe."""
        return torch.Generator().manual_seed(self.seed)
