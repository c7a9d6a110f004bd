"""Sums of kernels."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, LCMKernel
from torch import Tensor

from ...functionals import Operator
from ...inference import OutputFactor
from ...inference.posterior.covariance import ResidualCovariance
from ..family import Family, KernelMoments, ScaledProduct, approximates, family
from ..field_moments import covariance_of_fields
from ..maps import DrawnMap, MapRecipe, SharedMap
from ..reference_tensor import reference_tensor
from ..registry import OF_MAPS
from ..request import Request
from ..shared_weights import have_common_weights
from ..spectral_factor import SpectralFactor
from ..spectral_weights import GridFrequencies, SpectralWeights
from ..waves import Waves
from .composite import CompositeFamily
from .field_grid import FieldGridFamily
from .grid import GridFamily, draw_grid
from .operator_valued import OperatorFamily


@approximates(AdditiveKernel)
class SumFamily(CompositeFamily):
    """AdditiveKernel, whose features are those of its parts side by side; terms get an equal share of them each.

    Fields with the very same scalar kernel of the same inputs share one measure of the frequencies.
    """

    kernel: AdditiveKernel

    # How a kernel is drawn

    def terms(self) -> list[Any]:
        return [term for part in self.kernels for term in part.terms()]

    def products(self) -> list[ScaledProduct]:
        return [product for part in self.kernels for product in part.products()]

    def draw(self, request: Request) -> torch.nn.Module:
        terms = self.terms()
        if _have_one_measure([family(term) for term in terms]):
            return _shared_map(terms, request)
        request.check_no_map(self.kernel)
        return self._nested(iter(drawn_shares([family(term) for term in terms], request)))

    def draw_landmarks(self, request: Request) -> torch.nn.Module:
        """Landmarks of the whole sum; for several outputs, landmarks of every term with a share of the features."""
        terms = [family(term) for term in self.terms()]
        if all(term.is_scalar for term in terms):
            return super().draw_landmarks(request)
        shares = _shares(request.num_features, [False] * len(terms))
        drawn = [term.draw_landmarks(replace(request, num_features=next(shares))) for term in terms]
        return self._nested(iter(drawn))

    def _nested(self, maps: Iterator[torch.nn.Module]) -> torch.nn.ModuleList:
        """The maps of all terms as the sums are nested."""
        nested = torch.nn.ModuleList()
        for part in self.kernels:
            nested.append(part._nested(maps) if isinstance(part, SumFamily) else next(maps))
        return nested

    def draw_grid(self, request: Request) -> torch.nn.Module:
        is_scalar = all(part.is_scalar for part in self.kernels)
        return draw_grid(self.kernel, request, GridFamily if is_scalar else FieldGridFamily)

    def spectral_weights(self, at: GridFrequencies) -> SpectralWeights:
        parts = [part.spectral_weights(at.select(part.kernel)) for part in self.kernels]
        return reduce(lambda first, second: first.plus(second, at), parts)

    def spectral_factor(self, at: GridFrequencies, operator: Operator | None = None) -> SpectralFactor:
        parts = [part.spectral_factor(at.select(part.kernel), operator) for part in self.kernels]
        return reduce(SpectralFactor.plus, parts)

    def exact_maps(self) -> torch.nn.Module:
        return self.composed([part.exact_maps() for part in self.kernels])

    def composed(self, maps: list[torch.nn.Module]) -> torch.nn.Module:
        """The maps of a sum whose parts have these: one for fields that have it in common."""
        drawn = _drawn_for_all([family(part, own) for part, own in zip(self.kernel.kernels, maps, strict=True)])
        return torch.nn.ModuleList(maps) if drawn is None else SharedMap(drawn)

    # The features of a kernel with maps

    def check(self) -> None:
        super().check()
        if len({part.has_output_factor for part in self.parts}) > 1:
            raise ValueError(
                "expected a sum of scalar kernels or one of kernels of several outputs, got both; give the scalar ones "
                "a covariance of the outputs by DecomposableKernel or MultitaskKernel"
            )

    @property
    def num_scalar_features(self) -> int:
        return sum(part.num_scalar_features for part in self.parts)

    @property
    def has_output_factor(self) -> bool:
        return self.parts[0].has_output_factor

    @property
    def has_residual_covariance(self) -> bool:
        return all(part.has_residual_covariance for part in self.parts)

    def summands(self) -> list[Family]:
        return [self] if self.active_dims is not None else [term for part in self.parts for term in part.summands()]

    def active_features(self, x: Tensor) -> Tensor:
        if self.has_output_factor:
            return concatenated([part.scalar_features(x) for part in self.parts])
        return concatenated([part.all_features(x) for part in self.parts])

    def active_waves(self, input_dim: int) -> Waves:
        waves = [(part, part.waves(input_dim)) for part in self.parts]
        is_alike = not self.is_complex
        return Waves.concatenated([w if is_alike or part.is_complex else w.symmetric() for part, w in waves])

    def active_moments(self, x: Tensor, y: Tensor) -> KernelMoments | None:
        """The moments of the parts added up; None where some have none, or weights in common."""
        moments_of_parts = [moments for part in self.parts if (moments := part.moments(x, y)) is not None]
        are_tied = any(have_common_weights(*pair) for pair in itertools.combinations(self.parts, 2))
        if are_tied or len(moments_of_parts) < len(self.parts):
            return None
        return KernelMoments(*[reduce(torch.add, values) for values in zip(*moments_of_parts, strict=True)])

    def active_residual(self, x: Tensor) -> ResidualCovariance | None:
        residuals = [residual for part in self.parts if (residual := part.residual_covariance(x)) is not None]
        return reduce(ResidualCovariance.plus, residuals) if residuals else None

    def output_factor(self, operator: Operator | None = None) -> Tensor | OutputFactor:
        if not self.has_output_factor:
            return super().output_factor(operator)
        factors: list[Any] = [part.output_factor(operator) for part in self.parts]
        return OutputFactor.concatenate(factors)

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        if not self.has_output_factor:
            return super().feature_parameters()
        return iter({id(p): p for part in self.parts for p in part.feature_parameters()}.values())


@approximates(LCMKernel)
class LCMFamily(SumFamily):
    """LCMKernel, which is a sum of MultitaskKernels."""

    kernel: LCMKernel

    @property
    def kernels(self) -> list[Family]:
        return [family(part) for part in self.kernel.covar_module_list]

    @property
    def parts(self) -> list[Family]:
        return [family(part, maps) for part, maps in zip(self.kernel.covar_module_list, self.maps, strict=True)]

    def exact_maps(self) -> torch.nn.Module:
        return torch.nn.ModuleList([part.exact_maps() for part in self.kernels])

    @property
    def is_scalar(self) -> bool:
        return False


class SharedMeasureFamily(SumFamily):
    r"""A sum of operator-valued kernels with the same random frequencies, each with its own output scale; M Example 5.

    .. math:: K(x, y) \approx \sum_i s_i\, (\phi(x) B_i) (\phi(y) B_i)^\top
    """

    maps: Any

    def check(self) -> None:
        Family.check(self)

    @property
    def parts(self) -> list[Family]:
        return [family(term, self.maps.drawn) for term in self.terms()]

    @property
    def num_scalar_features(self) -> int:
        return self.parts[0].num_scalar_features

    def active_features(self, x: Tensor) -> Tensor:
        return self.parts[0].scalar_features(x)

    def output_factor(self, operator: Operator | None = None) -> OutputFactor:
        factors: list[Any] = [part.output_factor(operator) for part in self.parts]
        return OutputFactor.concatenate(factors, True)

    def active_moments(self, x: Tensor, y: Tensor) -> KernelMoments | None:
        """The moments of the parts added up, with twice the covariance of every two."""
        moments_of_parts = [moments for part in self.parts if (moments := part.moments(x, y)) is not None]
        if len(moments_of_parts) < len(self.parts):
            return None
        mean, variance = (sum(values[1:], values[0]) for values in zip(*moments_of_parts, strict=True))
        for left, right in itertools.combinations(self.parts, 2):
            fields = left.unscaled.kernel, right.unscaled.kernel
            covariance = covariance_of_fields(self.maps.drawn.made_map(), *fields, left.selected(x), left.selected(y))
            if covariance is None:
                return None
            scale = left.total_outputscale * right.total_outputscale
            variance = variance + 2.0 * scale[..., None, None] * covariance
        return KernelMoments(mean, variance)


OF_MAPS[SharedMap] = SharedMeasureFamily


def _have_one_measure(terms: Sequence[Family]) -> bool:
    """Whether terms are fields with the very same scalar kernel of the same inputs."""
    scalars = [term.measure_kernel for term in terms]
    if scalars[0] is None or any(scalar is not scalars[0] for scalar in scalars):
        return False
    return _select_the_same([kernel for term in terms for kernel in (term.kernel, term.unscaled.kernel)])


def _shared_map(terms: Sequence[Kernel], request: Request) -> SharedMap:
    """A map with frequencies that suit all fields (M Example 5)."""
    families = [family(term) for term in terms]
    first: Any = families[0].unscaled
    if request.feature_map is not None:
        maps: list[Any] = [term.draw(request) for term in families]
        return SharedMap(maps[0])
    columns = first.num_columns(request.select(first.kernel).input_dim)
    if columns is None:
        raise ValueError("expected input_dim for a sum of kernels that share one measure, got none; pass it")
    like = reference_tensor(families[0].kernel, request.like)
    recipe = MapRecipe(first.method(request), request.num_features, next(request.seeds), like.dtype)
    first.check_method(recipe.method)
    fields = [term.unscaled.kernel for term in families]
    for field in fields:
        field.covariance(columns)  # which raises where there is none
    powers = {power for field in fields for power in field.powers(columns)}
    return SharedMap(DrawnMap(first.weighted_map(recipe, columns, tuple(sorted(powers))).to(like.device)))


def _drawn_for_all(terms: Sequence[Family]) -> DrawnMap | None:
    """The one map of fields with one scalar kernel and one selection of inputs."""
    leaves: list[Any] = [term.unscaled for term in terms]
    if not all(isinstance(leaf, OperatorFamily) and isinstance(leaf.maps, DrawnMap) for leaf in leaves):
        return None
    drawn, scalar = leaves[0].maps, leaves[0].kernel.scalar_kernel
    is_one = all(leaf.maps.feature_map is drawn.feature_map and leaf.kernel.scalar_kernel is scalar for leaf in leaves)
    is_made = is_one and drawn.feature_map is not None
    kernels = [part.kernel for part in (*terms, *leaves)]
    return drawn if is_made and _select_the_same(kernels) else None


def _select_the_same(kernels: Sequence[Kernel]) -> bool:
    dims = [None if kernel.active_dims is None else kernel.active_dims.tolist() for kernel in kernels]
    return all(selected == dims[0] for selected in dims)


def drawn_shares(families: list[Family], request: Request) -> list[torch.nn.Module]:
    """The maps of the terms of a sum: exact ones take what they need, and others have equal shares of the rest."""
    exact = [term.exact_columns(request) for term in families]
    open_ended = [term for term, columns in zip(families, exact, strict=True) if columns is None]
    rest = request.num_features - sum(columns or 0 for columns in exact)
    shares = _shares(rest, [term.has_pairs(request) for term in open_ended])
    widths = [next(shares) if columns is None else columns for columns in exact]
    parts = zip(families, widths, strict=True)
    return [term.draw(replace(request, num_features=width)) for term, width in parts]


def _shares(total: int, has_pairs: list[bool]) -> Iterator[int]:
    """Equal shares of a number of features, in pairs; single ones go where columns need no pairs, if anywhere."""
    count = len(has_pairs)
    needed = sum(2 if paired else 1 for paired in has_pairs)
    if total < needed:
        raise ValueError(
            f"expected at least {needed} features for {count} approximated parts of a sum, beside the columns of exact "
            f"parts, got {total}; use {needed - total} more"
        )
    if total < 2 * count:
        shares, single = [2 if paired else 1 for paired in has_pairs], total - needed
    else:
        pairs, single = divmod(total, 2)
        shares = [2 * (pairs // count + (i < pairs % count)) for i in range(count)]
    for i in reversed(range(count)):
        if single and not has_pairs[i]:
            shares[i], single = shares[i] + 1, single - 1
    return iter(shares)


def concatenated(parts: list[Tensor]) -> Tensor:
    """Features of several kernels side by side."""
    batch = torch.broadcast_shapes(*[part.shape[:-2] for part in parts])
    return torch.cat([part.expand(*batch, *part.shape[-2:]) for part in parts], dim=-1)
