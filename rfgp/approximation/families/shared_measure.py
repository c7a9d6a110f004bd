"""Sums of operator-valued kernels with one scalar kernel, whose features share one measure of the frequencies."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpytorch.kernels import AdditiveKernel, Kernel, LCMKernel
from torch import Tensor

from ...features import FeatureMap
from ...functionals import Operator
from ...inference import OutputFactor
from ..family import Family, approximates, family
from ..feature_kernel import FeatureKernel
from ..field_moments import covariance_of_fields
from ..map_holder import MapRecipe
from ..random_feature_kernel import KernelMoments
from ..reference_tensor import reference_tensor
from ..request import Request
from .sum import FeatureSumKernel, SumFamily


class SharedMeasureKernel(FeatureSumKernel):
    r"""A sum of operator-valued kernels with the same random frequencies, each with its own output scale; M Example 5.

    .. math:: K(x, y) \approx \sum_i s_i\, (\phi(x) B_i) (\phi(y) B_i)^\top
    """

    def __init__(self, *kernels: Any) -> None:
        super().__init__(*kernels)
        if not have_one_map(kernels):
            raise ValueError(
                "expected fields with one feature map, one scalar kernel and the same active_dims, got others; use a "
                "FeatureSumKernel"
            )

    @property
    def num_scalar_features(self) -> int:
        return self.parts[0].num_scalar_features

    def active_features(self, x: Tensor) -> Tensor:
        return self.parts[0].scalar_features(x)

    def output_factor(self, operator: Operator | None = None) -> OutputFactor:
        return OutputFactor.concatenate([kernel.output_factor(operator) for kernel in self.parts], True)

    def active_moments(self, x: Tensor, y: Tensor) -> KernelMoments | None:
        """The moments of the parts added up, with twice the covariance of every two."""
        moments_of_parts = [moments for kernel in self.parts if (moments := kernel.moments(x, y)) is not None]
        if len(moments_of_parts) < len(self.parts):
            return None
        mean, variance = (sum(values[1:], values[0]) for values in zip(*moments_of_parts, strict=True))
        for left, right in itertools.combinations(self.parts, 2):
            fields = left.unscaled.base_kernel, right.unscaled.base_kernel
            covariance = covariance_of_fields(left.unscaled.made_map(), *fields, left.selected(x), left.selected(y))
            if covariance is None:
                return None
            scale = left.total_outputscale * right.total_outputscale
            variance = variance + 2.0 * scale[..., None, None] * covariance
        return KernelMoments(mean, variance)


def have_one_map(kernels: Sequence[Any]) -> bool:
    """Whether kernels with features are fields with one map, one scalar kernel and one selection of inputs."""
    leaves = [kernel.unscaled for kernel in kernels]
    if not all(isinstance(leaf, FeatureKernel) and leaf.has_output_factor for leaf in leaves):
        return False
    first, *others = leaves
    is_one = all(
        leaf.feature_map is first.feature_map and leaf.base_kernel.scalar_kernel is first.base_kernel.scalar_kernel
        for leaf in others
    )
    return is_one and first.feature_map is not None and _select_the_same([*kernels, *leaves])


def _select_the_same(kernels: Sequence[Kernel]) -> bool:
    dims = [None if kernel.active_dims is None else kernel.active_dims.tolist() for kernel in kernels]
    return all(selected == dims[0] for selected in dims)


@approximates(AdditiveKernel)
class AdditiveFamily(SumFamily):
    """AdditiveKernel; fields with the very same scalar kernel of the same inputs share one measure."""

    def approximate(self, request: Request) -> FeatureSumKernel:
        terms = [family(term) for term in self.terms()]
        if not _have_one_measure(terms):
            return super().approximate(request)
        if request.feature_map is None:
            request = replace(request, feature_map=self._shared_map([term.unscaled for term in terms], request))
        return self.compose([term.approximate(request) for term in terms])

    def compose(self, parts: list[Any]) -> FeatureSumKernel:
        """The sum of kernels with features, which share their measure where they have one map."""
        return SharedMeasureKernel(*parts) if have_one_map(parts) else super().compose(parts)

    def _shared_map(self, fields: list[Any], request: Request) -> FeatureMap:
        """A map with frequencies that suit all fields (M Example 5)."""
        first: Any = family(fields[0])
        columns = first.num_columns(request.select(fields[0]).input_dim)
        if columns is None:
            raise ValueError("expected input_dim for a sum of kernels that share one measure, got none; pass it")
        like = reference_tensor(self.kernel, request.like)
        recipe = MapRecipe(first.method(request), request.num_features, next(request.seeds), like.dtype)
        first.check_method(recipe.method)
        for field in fields:
            field.covariance(columns)  # which raises where there is none
        powers = {power for field in fields for power in field.powers(columns)}
        return first.weighted_map(recipe, columns, tuple(sorted(powers))).to(like.device)


@approximates(LCMKernel)
class LCMFamily(AdditiveFamily):
    """LCMKernel, which is a sum of MultitaskKernels."""

    kernel: LCMKernel

    @property
    def parts(self) -> list[Family]:
        return [family(part) for part in self.kernel.covar_module_list]

    @property
    def is_scalar(self) -> bool:
        return False


def _have_one_measure(terms: list[Family]) -> bool:
    """Whether terms are fields with the very same scalar kernel of the same inputs."""
    scalars = [term.measure_kernel for term in terms]
    if scalars[0] is None or any(scalar is not scalars[0] for scalar in scalars):
        return False
    return _select_the_same([kernel for term in terms for kernel in (term.kernel, term.unscaled)])
