"""Families of kernels with feature maps of their own."""

from __future__ import annotations

import abc
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from .._support import checks
from ..features import ComplexToReal, FeatureMap, RandomFourier, Spectrum
from ..functionals import Operator
from ..inference import OutputFactor
from .family import Family, UnregisteredFamily, family, unsupported
from .map_holder import MapRecipe
from .method import Method
from .request import Request


class MapFamily(Family):
    """A family of kernels with feature maps: their methods, how maps are built, and the inputs that maps take."""

    truncated: ClassVar[tuple[str, ...]] = ()
    """Methods that truncate an infinite series, whose features vanish far from the data."""
    is_ranked: ClassVar[bool] = True
    """Whether training inputs, where given, choose the method by predicted errors."""
    has_output_factor: ClassVar[bool] = False
    """Whether the kernel is operator-valued."""

    @property
    @abc.abstractmethod
    def methods(self) -> tuple[str, ...]:
        """The names of the methods."""

    @property
    @abc.abstractmethod
    def default(self) -> str:
        """The method without training inputs."""

    @property
    def in_products(self) -> str | None:
        """The method whose every column is unbiased, for element-wise products; None where there is none."""
        return None

    @property
    def is_shift_invariant(self) -> bool:
        """Whether the kernel is shift-invariant."""
        return False

    @abc.abstractmethod
    def build(self, recipe: MapRecipe, input_dim: int, x: Tensor | None) -> FeatureMap:
        """A map from a recipe, for inputs of ``input_dim`` columns; a ValueError where it needs training inputs x."""

    def make(self, recipe: MapRecipe, input_dim: int, x: Tensor | None, like: Tensor) -> FeatureMap:
        """What :meth:`build` makes, with weights of the dtype and on the device of ``like``."""
        return self.build(replace(recipe, dtype=like.dtype), input_dim, x).to(like.device)

    @abc.abstractmethod
    def mismatch(self, feature_map: FeatureMap) -> str:
        """What a map (inside a complex-to-real one) has to be, in words; empty where this one fits."""

    def inputs(self, feature_map: FeatureMap, x: Tensor) -> Tensor:
        """The inputs of the map, (..., N, d) to (..., N, d'), which carry hyperparameters; differentiable."""
        return self.scaled(x)

    def scaled(self, x: Tensor) -> Tensor:
        """The inputs (..., N, d) in units of the lengthscale, where the kernel has one; differentiable."""
        return x / self.kernel.lengthscale if self.kernel.has_lengthscale else x

    def hyperparameters(self, feature_map: FeatureMap) -> dict[str, Tensor]:
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

    def center(self, recipe: MapRecipe, x: Tensor | None) -> Tensor | None:
        """A point (d,) to subtract from the inputs of a shift-invariant kernel, where the map gains by it."""
        return None

    def output_factor(self, feature_map: FeatureMap, operator: Operator | None = None) -> OutputFactor:
        """The factor of the outputs of an operator-valued kernel, or of an operator; a ValueError without any."""
        raise ValueError(f"expected an operator-valued kernel, got {type(self.kernel).__name__}, which has one output")

    def moments(self, feature_map: FeatureMap, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor] | None:
        """Mean and variance of the estimate by a map at centered inputs; None where there is no closed form."""
        hyperparameters = self.hyperparameters(feature_map)
        inputs = [self.map_inputs(feature_map, rows) for rows in (x, y)]
        moments = feature_map.moments(*inputs, **hyperparameters)
        if moments is None:
            return None
        scale = self.scale(feature_map) ** 2
        # of the real part, where features are complex
        variance = scale**2 * 0.5 * (moments.variance + moments.pseudo_variance.real)
        return scale * feature_map.target(*inputs, **hyperparameters).real, variance

    def map_inputs(self, feature_map: FeatureMap, x: Tensor) -> Tensor:
        """The inputs of a map for centered ones, with the kernel's batch dimensions; a ValueError for other columns."""
        columns = feature_map.input_dim - self.extra_columns(feature_map)
        if x.shape[-1] != columns:
            checks.inputs(x, columns)
        inputs = self.inputs(feature_map, x)
        if not self.kernel.batch_shape:
            return inputs
        batch = torch.broadcast_shapes(self.kernel.batch_shape, inputs.shape[:-2])
        return inputs.expand(*batch, *inputs.shape[-2:])

    def rows(self, feature_map: FeatureMap, x: Tensor) -> Tensor:
        """The rows of a map for centered inputs, [real, imaginary] parts of complex ones side by side."""
        rows = feature_map.rows(self.map_inputs(feature_map, x), **self.hyperparameters(feature_map))
        scale = self.scale(feature_map)
        return rows if scale == 1.0 else scale * rows

    def num_exact_columns(self, method: Method, input_dim: int | None) -> int | None:
        """The number of columns of exact features, or None where the method approximates."""
        return None

    def num_columns(self, input_dim: int | None) -> int | None:
        """The number of input columns of the kernel; None if unknown, a ValueError where ``ard_num_dims`` differs."""
        return checked_columns(self.kernel.ard_num_dims, input_dim)

    def check_map(self, feature_map: FeatureMap) -> None:
        """Raise a ValueError where a map does not belong to the kernel."""
        inner = unwrap_ctr(feature_map)
        if expected := self.mismatch(inner):
            degree = getattr(inner, "degree", None)
            got = type(inner).__name__ + ("" if degree is None else f" of degree {degree}")
            raise ValueError(f"expected {expected} for {type(self.kernel).__name__}, got {got}; pass such a map")

    def check_method(self, method: Method) -> None:
        """Raise a ValueError where the family has no such method."""
        if method.name not in self.methods:
            raise ValueError(
                f"expected one of the methods {', '.join(self.methods)} for {type(self.kernel).__name__}, got "
                f"{str(method)!r}; choose one of these"
            )

    def method(self, request: Request) -> Method:
        """The method asked for; the default where none is, or where the family is exact and has no other."""
        default = Method.parse(self.default)
        if request.method is None or (request.method.name not in self.methods and default.is_exact):
            return default
        return request.method

    def _applicable(self, input_dim: int) -> tuple[Method, ...]:
        return tuple(method for name in self.methods for method in Method.parse(name).real_forms)

    def exact_columns(self, request: Request) -> int | None:
        if request.feature_map is not None:
            return None
        return self.num_exact_columns(self.method(request), self.num_columns(request.select(self.kernel).input_dim))

    def has_pairs(self, request: Request) -> bool:
        if request.method is None and request.x is not None:
            return any(method.has_pairs for method in self.applicable(request.x.shape[-1]) or ())
        return self.method(request).has_pairs

    def truncates(self, method: Method) -> bool:
        return method.name in self.truncated

    def columnwise_method(self, request: Request) -> Method | None:
        method = self.own_method(request)
        if method is None and self.in_products is not None:
            method = Method.parse(self.in_products)
        return method.columnwise if method is not None and method.has_unbiased_columns else None

    def own_method(self, request: Request) -> Method | None:
        is_own = request.method is not None and request.method.name in self.methods
        return request.method if is_own else None


def map_family(kernel: Any) -> MapFamily:
    """The family of a kernel that has feature maps of its own; a ValueError for others."""
    of_kernel = family(kernel)
    if not isinstance(of_kernel, MapFamily):
        raise of_kernel.error if isinstance(of_kernel, UnregisteredFamily) else unsupported(kernel)
    return of_kernel


def random_fourier(recipe: MapRecipe, input_dim: int, spectrum: Spectrum) -> RandomFourier:
    """Random Fourier features as a recipe says."""
    structure, generator = recipe.method.structure, recipe.generator
    return RandomFourier(
        input_dim, recipe.num_features, spectrum, structure, recipe.is_complex, generator=generator, dtype=recipe.dtype
    )


def checked_columns(ard_num_dims: int | None, input_dim: int | None) -> int | None:
    """The number of columns that a kernel and its inputs agree in, or None where nothing tells."""
    if ard_num_dims is not None and input_dim not in (None, ard_num_dims):
        raise ValueError(
            f"expected {ard_num_dims} columns as ard_num_dims says, got {input_dim}; correct one of the two"
        )
    return ard_num_dims if input_dim is None else input_dim


def unwrap_ctr(feature_map: FeatureMap) -> FeatureMap:
    """The complex map inside a complex-to-real one, else the map itself."""
    return feature_map.feature_map if isinstance(feature_map, ComplexToReal) else feature_map
