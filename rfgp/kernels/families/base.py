"""What a family of exact kernels knows about its feature maps."""

from __future__ import annotations

import abc
import dataclasses
from typing import ClassVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ...features import ComplexToReal, FeatureMap, Maclaurin
from ...features.by_name import SKETCHES
from ..recipe import MapRecipe


class Family(abc.ABC):
    """Feature maps of one family of exact kernels: which there are, how they are made and what they are fed.

    :param kernel: the exact kernel.
    """

    default: ClassVar[str]
    """The method where nothing is known about the inputs."""
    in_products: ClassVar[str | None] = None
    """The method whose single columns are without bias, or None where there is none."""
    is_shift_invariant: ClassVar[bool] = False
    """Whether the kernel stays the same where a point is subtracted from all inputs."""
    truncated: ClassVar[tuple[str, ...]] = ()
    """Methods that leave out the tail of a series that does not end, so that features cannot follow it off the data."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    @property
    @abc.abstractmethod
    def methods(self) -> tuple[str, ...]:
        """The names of the methods, without forms."""

    @abc.abstractmethod
    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        """A map from a recipe, for inputs of ``input_dim`` columns; x are training inputs, where they are known.

        :raises ValueError: where the map needs training inputs, or cannot be made with the kernel's parameters.
        """

    def make(self, recipe: MapRecipe, input_dim: int, x: Tensor | None, like: Tensor) -> FeatureMap:
        """What :meth:`build` makes, with weights of the dtype and on the device of ``like``."""
        return self.build(dataclasses.replace(recipe, dtype=like.dtype), input_dim, x).to(like.device)

    @abc.abstractmethod
    def expected(self, feature_map: FeatureMap) -> str:
        """What a map (inside a complex-to-real one) has to be, in words; empty where this one fits."""

    def inputs(self, feature_map: FeatureMap, x: Tensor) -> Tensor:
        """The inputs of the map, (..., N, d) to (..., N, d'), which carry hyperparameters; differentiable."""
        return x

    def law(self, feature_map: FeatureMap) -> dict[str, Tensor]:
        """Parameters of the kernel that the map takes beside its inputs; differentiable."""
        return {}

    def extra_columns(self, feature_map: FeatureMap) -> int:
        """By how many columns the inputs of the map exceed those of the kernel."""
        return 0

    def scale(self, feature_map: FeatureMap) -> float:
        """A constant that the features are multiplied by."""
        return 1.0

    def is_truncated(self, feature_map: FeatureMap) -> bool:
        """Whether a map leaves out terms of the kernel's series, whose prior variance predictions would lack."""
        return False

    def exact_columns(self, recipe: MapRecipe, input_dim: int | None) -> int | None:
        """The number of columns of exact features, or None where the method approximates."""
        return None

    def applicable(self, input_dim: int) -> tuple[str, ...]:
        """The methods, with their real forms, that inputs of so many columns can have."""
        plain = ("linear", "series", "optical", *(name for name, s in SKETCHES.items() if s.default_form == "real"))
        has_one_form = plain + tuple(name for name in self.methods if name.startswith(("fourier", "spherical")))
        return tuple(
            name + form for name in self.methods for form in ([""] if name in has_one_form else [":real", ":ctr"])
        )

    def center(self, recipe: MapRecipe, x: Tensor | None) -> Tensor | None:
        """A point (d,) to subtract from the inputs of a shift-invariant kernel, where the map gains by it."""
        return None

    def check_map(self, feature_map: FeatureMap) -> None:
        """Raise a ValueError where a map does not belong to the kernel."""
        inner = inside(feature_map)
        if expected := self.expected(inner):
            degree = getattr(inner, "degree", None)
            got = type(inner).__name__ + ("" if degree is None else f" of degree {degree}")
            raise ValueError(f"expected {expected} for {type(self.kernel).__name__}, got {got}; pass such a map")

    def check_method(self, recipe: MapRecipe) -> None:
        """Raise a ValueError where the family has no such method."""
        if recipe.name not in self.methods:
            raise ValueError(
                f"expected one of the methods {', '.join(self.methods)} for {type(self.kernel).__name__}, got "
                f"{recipe.method!r}; choose one of these"
            )


def leaves_out_terms(feature_map: FeatureMap, coefficients: Tensor) -> bool:
    """Whether a Maclaurin map has no columns for some degree of a power series.

    :param feature_map: any map; others leave out nothing.
    :param coefficients: a_0, a_1, ... of the kernel, (..., p + 1).
    """
    inner = inside(feature_map)
    if not isinstance(inner, Maclaurin):
        return False
    is_there = (coefficients.detach() > 0).reshape(-1, coefficients.shape[-1]).any(0)
    return not set(is_there.nonzero().flatten().tolist()) <= set(inner.num_columns)


def inside(feature_map: FeatureMap) -> FeatureMap:
    """The complex map inside a complex-to-real one, else the map itself."""
    return feature_map.feature_map if isinstance(feature_map, ComplexToReal) else feature_map


def generator(recipe: MapRecipe) -> torch.Generator:
    """A generator seeded as the recipe says."""
    return torch.Generator().manual_seed(recipe.seed)
