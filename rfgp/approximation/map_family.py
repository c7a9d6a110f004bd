"""Families of kernels with feature maps of their own."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import torch
from linear_operator import to_dense
from torch import Tensor

from .._support import checks
from ..features import ComplexToReal, FeatureMap, RandomFourier, Spectrum
from ..functionals import Operator
from ..inference import OutputFactor
from ..inference.posterior.covariance import ResidualCovariance
from .family import Family, KernelMoments
from .maps import DrawnMap, MapRecipe, maps_kept_on_error
from .method import FeatureMethod
from .reference_tensor import reference_tensor
from .request import Request
from .waves import Waves


class MapFamily(Family):
    r"""Kernels with feature maps: :math:`\phi(z(x))`, where z(x) are inputs scaled by the hyperparameters.

    A family of your own has the abstract members: the methods, how maps are built, and which maps belong to the kernel.
    """

    maps: DrawnMap
    num_exact_features: ClassVar[int | None] = None
    """The number of features of an exact default method, or 1 where the inputs tell; None where it approximates."""
    truncated: ClassVar[tuple[str, ...]] = ()
    """Methods that truncate an infinite series, whose features vanish far from the data."""
    is_ranked: ClassVar[bool] = True
    """Whether training inputs, where given, choose the method by predicted errors."""
    takes_columns = False
    """Whether the features are those of the map in unbiased columns."""

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

    def operator_factor(self, feature_map: FeatureMap, operator: Operator | None = None) -> OutputFactor:
        """The factor of the outputs of an operator-valued kernel, or of an operator; a ValueError without any."""
        raise ValueError(f"expected an operator-valued kernel, got {type(self.kernel).__name__}, which has one output")

    def map_moments(self, feature_map: FeatureMap, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor] | None:
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

    def num_exact_columns(self, method: FeatureMethod, input_dim: int | None) -> int | None:
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

    def check_method(self, method: FeatureMethod) -> None:
        """Raise a ValueError where the family has no such method."""
        if method.name not in self.methods:
            raise ValueError(
                f"expected one of the methods {', '.join(self.methods)} for {type(self.kernel).__name__}, got "
                f"{str(method)!r}; choose one of these"
            )

    def method(self, request: Request) -> FeatureMethod:
        """The method asked for; the default where none is, or where the family is exact and has no other."""
        default = FeatureMethod.parse(self.default)
        if request.method is None or (request.method.name not in self.methods and default.is_exact):
            return default
        return request.method

    def _applicable(self, input_dim: int) -> tuple[FeatureMethod, ...]:
        return tuple(method for name in self.methods for method in FeatureMethod.parse(name).real_forms)

    def exact_columns(self, request: Request) -> int | None:
        if request.feature_map is not None:
            return None
        return self.num_exact_columns(self.method(request), self.num_columns(request.select(self.kernel).input_dim))

    def has_pairs(self, request: Request) -> bool:
        if request.method is None and request.x is not None:
            return any(method.has_pairs for method in self.applicable(request.x.shape[-1]) or ())
        return self.method(request).has_pairs

    def truncates(self, method: FeatureMethod) -> bool:
        return method.name in self.truncated

    def columnwise_method(self, request: Request) -> FeatureMethod | None:
        method = self.own_method(request)
        if method is None and self.in_products is not None:
            method = FeatureMethod.parse(self.in_products)
        return method.columnwise if method is not None and method.has_unbiased_columns else None

    def own_method(self, request: Request) -> FeatureMethod | None:
        is_own = request.method is not None and request.method.name in self.methods
        return request.method if is_own else None

    # How a map is drawn

    def draw(self, request: Request) -> DrawnMap:
        if request.feature_map is not None:
            return self._given(request.feature_map, request)
        selected = request.select(self.kernel)
        columns = self.num_columns(selected.input_dim)
        if self.is_ranked and request.method is None and request.x is not None and self.exact_columns(request) is None:
            chosen = FeatureMethod.parse(request.choose(self.kernel, request.num_features, request.x))
            selected = replace(selected, method=chosen)
        recipe = MapRecipe(self.method(selected), request.num_features, next(request.seeds))
        self.check_method(recipe.method)
        if columns is None:
            return DrawnMap(recipe)
        drawn = DrawnMap(recipe, self.center(recipe, selected.x))
        self._build(drawn, columns, selected.x, reference_tensor(self.kernel, request.like))
        return drawn

    def _given(self, feature_map: FeatureMap, request: Request) -> DrawnMap:
        self.check_map(feature_map)
        num_features, columns = request.num_features, self.num_columns(request.select(self.kernel).input_dim)
        if columns not in (None, feature_map.input_dim):
            raise ValueError(
                f"expected a map of {columns} columns as the inputs of the kernel have, got a "
                f"{type(feature_map).__name__} of {feature_map.input_dim}; make the two agree"
            )
        if feature_map.num_features != num_features:
            raise ValueError(
                f"expected num_features={feature_map.num_features}, the columns of the {type(feature_map).__name__} "
                f"given as method, got {num_features}; make the two agree"
            )
        return DrawnMap(feature_map)

    def _build(self, drawn: DrawnMap, input_dim: int, x: Tensor | None, like: Tensor) -> FeatureMap:
        """Make a map from its recipe, with weights of the dtype and on the device of ``like``."""
        if drawn.recipe is None:
            raise ValueError("expected a recipe for the feature map, got none; pass a FeatureMap or a MapRecipe")
        feature_map = self.make(drawn.recipe, input_dim, x, like)
        self.check_map(feature_map)
        drawn.feature_map, drawn.num_columns = feature_map, input_dim
        return feature_map

    def check(self) -> None:
        what = "a FeatureMap or a MapRecipe"
        checks.instance("maps", self.maps, DrawnMap, what, f"see the methods of {type(self.kernel).__name__}")
        if self.maps.recipe is not None:
            self.check_method(self.maps.recipe.method)
        if self.maps.feature_map is not None:
            self.check_map(self.maps.feature_map)
            self.maps.num_columns = self.maps.feature_map.input_dim - self.extra_columns(self.maps.feature_map)

    def rebuild(self, input_dim: int, like: Tensor) -> FeatureMap:
        """Make the map anew for inputs of so many columns."""
        return self._build(self.maps, input_dim, None, like)

    @property
    def has_features(self) -> bool:
        return self.num_exact_features is not None

    def exact_maps(self) -> torch.nn.Module:
        if self.num_exact_features is None:
            return super().exact_maps()
        return DrawnMap(MapRecipe(FeatureMethod.parse(self.default), self.num_exact_features, 0))

    # The features of a kernel with a map

    @property
    def feature_map(self) -> FeatureMap:
        """The map; a ValueError where it has not been made yet."""
        return self._in_columns(self.maps.made_map())

    def _in_columns(self, feature_map: FeatureMap) -> FeatureMap:
        columns = feature_map.columnwise() if self.takes_columns else feature_map
        if columns is None:
            raise ValueError(f"expected a map with unbiased columns, got {type(feature_map).__name__}; use another one")
        return columns

    def _map(self, x: Tensor) -> FeatureMap:
        """The map, made for inputs like x where there is none yet."""
        if self.maps.feature_map is None:
            like = self._like_or(x)
            checks.same_kind(checks.inputs(x), like, "x", "the kernel")
            self._build(self.maps, x.shape[-1], None, like)
        return self.feature_map

    @property
    def num_scalar_features(self) -> int:
        return self.feature_map.num_features

    @property
    def input_dim(self) -> int:
        return self.feature_map.input_dim

    @property
    def is_complex(self) -> bool:
        return self.column_source.is_complex

    @property
    def column_source(self) -> FeatureMap | MapRecipe:
        """The map or its recipe, in the columns that the features are taken in."""
        source = self.maps.source
        if not self.takes_columns:
            return source
        columns = source.columnwise()
        return source if columns is None else columns

    @property
    def has_unbiased_columns(self) -> bool:
        return self.takes_columns or (self.maps.feature_map is not None and self.maps.feature_map.has_unbiased_columns)

    def columnwise(self) -> MapFamily | None:
        if self.maps.source.columnwise() is None:
            return None
        twin = type(self)(self.kernel, self.maps)
        twin.takes_columns = True
        return twin

    def active_features(self, x: Tensor) -> Tensor:
        feature_map, rows = self._map_and_rows(x)
        return torch.complex(*rows.chunk(2, dim=-1)) if feature_map.is_complex else rows

    def active_real_features(self, x: Tensor) -> Tensor:
        return self._map_and_rows(x)[1]

    def _map_and_rows(self, x: Tensor) -> tuple[FeatureMap, Tensor]:
        """The map, and its features with [real, imaginary] parts side by side; a map that fails is forgotten again."""
        if self.maps.feature_map is None:
            with maps_kept_on_error(self.maps):
                self._map(x)
                return self._map_and_rows(x)
        feature_map = self.feature_map
        rows = feature_map.rows(self.map_inputs(feature_map, self.centered(x)), **self.hyperparameters(feature_map))
        scale = self.scale(feature_map)
        return feature_map, rows if scale == 1.0 else scale * rows

    def active_residual(self, x: Tensor) -> ResidualCovariance | None:
        if not self.is_truncated(self._map(x)):
            return None
        prior = to_dense(self.kernel.forward(x, x, diag=True))
        missing: Tensor = prior - self.active_real_features(x).square().sum(-1)
        missing = missing.clamp_min(torch.finfo(missing.dtype).tiny)  # not zero, where its root has no gradient
        return ResidualCovariance.of_variance(missing)

    def active_moments(self, x: Tensor, y: Tensor) -> KernelMoments | None:
        moments = self.map_moments(self._map(x), self.centered(x), self.centered(y))
        return None if moments is None else KernelMoments(*moments)

    def centered(self, x: Tensor) -> Tensor:
        """Selected inputs (..., N, d) less the center."""
        center = self.maps.center
        return x if center is None else checks.inputs(x, len(center)) - center

    def active_waves(self, input_dim: int) -> Waves:
        like = self.like
        identity = torch.eye(input_dim, dtype=like.dtype, device=like.device)
        feature_map = self._map(identity)
        waves = feature_map.waves(**self.hyperparameters(feature_map))
        if waves is None or not self.is_shift_invariant:
            return super().active_waves(input_dim)
        frequencies = waves[0] @ self.map_inputs(feature_map, identity).mT  # inputs are linear
        amplitudes = waves[1].expand(frequencies.shape[:-1]).unsqueeze(-1)
        if not self.has_output_factor:
            return Waves(frequencies, amplitudes)
        factor = amplitudes.unsqueeze(-1) * self.kernel.factor(frequencies)
        return Waves(frequencies.repeat_interleave(factor.shape[-1], dim=-2), factor.mT.flatten(-3, -2))

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        parameters: Iterator[torch.nn.Parameter] = self.kernel.parameters()
        return parameters

    def output_factor(self, operator: Operator | None = None) -> Tensor | OutputFactor:
        """The factor of an operator-valued kernel at the map's frequencies; [[1]] for scalar kernels."""
        if not self.has_output_factor:
            return super().output_factor(operator)
        return self.operator_factor(self.feature_map, operator)


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
