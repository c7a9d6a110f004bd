"""Products of kernels."""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import replace
from functools import reduce
from typing import Any

import torch
from gpytorch.kernels import Kernel, ProductKernel
from torch import Tensor

from ..._support import checks
from ...inference.posterior.covariance import ResidualCovariance
from ..family import approximates, family
from ..grid_kernel import FourierGridKernel, grid_kernel
from ..map_holder import map_holders
from ..random_feature_kernel import RandomFeatureKernel, check_parts
from ..request import Request
from ..shared_priors import count_priors_once
from ..shared_weights import have_common_weights
from ..spectral_weights import GridFrequencies, SpectralWeights, convolved, no_density, variance_of_copies
from ..values import accurate_values
from ..waves import Waves
from .composite import CompositeFamily, CompositeKernel
from .sum import FeatureSumKernel, approximated_terms


class FeatureProductKernel(CompositeKernel, ProductKernel):
    r"""A product of kernels, whose features are products of those of its parts.

    .. math:: \phi(x)_\ell = D^{(m - 1)/2} \prod_{i=1}^m \phi_i(x)_\ell \qquad \text{or} \qquad
        \phi(x)_{\ell \ell'} = \phi_1(x)_\ell\, \phi_2(x)_{\ell'}

    Element-wise over independent parts of one width with unbiased columns, else row-wise Kronecker; a ValueError where
    two parts have the same weights.
    """

    def __init__(self, *kernels: Any, is_complex: bool = False) -> None:
        check_parts(kernels)
        if any(kernel.has_output_factor for kernel in kernels):
            raise ValueError(
                "expected scalar kernels in a product, got one of several outputs; multiply inside MultitaskKernel"
            )
        for i, kernel in enumerate(kernels):
            if any(have_common_weights(kernel, other) for other in kernels[:i]):
                raise ValueError(
                    "expected parts with weights of their own, got two with the same ones, which would bias their "
                    "product; make one of them with another seed"
                )
        ProductKernel.__init__(self, *kernels)
        self._is_complex = checks.flag("is_complex", is_complex)

    @property
    def exact_kernel(self) -> ProductKernel:
        return ProductKernel(*[kernel.exact_kernel for kernel in self.parts])

    @property
    def is_complex(self) -> bool:
        return self._is_complex and any(kernel.is_complex for kernel in self.parts)

    @property
    def num_scalar_features(self) -> int:
        columnwise = {k.num_scalar_features for k in self.parts if k.has_unbiased_columns}
        others = [k.num_scalar_features for k in self.parts if not k.has_unbiased_columns]
        becomes_pairs = not self._is_complex and any(k.is_complex for k in self.parts)
        return math.prod([*columnwise, *others]) * (2 if becomes_pairs else 1)

    def active_features(self, x: Tensor) -> Tensor:
        parts = [kernel.all_features(x) for kernel in self.parts]
        groups: dict[int, list[Tensor]] = {}
        others = []
        for kernel, features in zip(self.parts, parts, strict=True):
            if kernel.has_unbiased_columns:
                groups.setdefault(features.shape[-1], []).append(features)
            else:
                others.append(features)
        columns = [reduce(_elementwise, group) for group in groups.values()]
        product = reduce(_kronecker, [*columns, *others])
        if product.is_complex() and not self._is_complex:
            return torch.cat([product.real, product.imag], dim=-1)
        return product

    def active_waves(self, input_dim: int) -> Waves:
        groups: dict[int, list[Waves]] = {}
        others: list[Waves] = []
        real: list[Waves] = []
        for kernel in self.parts:
            waves = kernel.waves(input_dim)
            if kernel.has_unbiased_columns:
                groups.setdefault(kernel.num_scalar_features, []).append(waves)
            else:
                (others if kernel.is_complex else real).append(waves)
        factors = [*(reduce(Waves.elementwise, group) for group in groups.values()), *others] or [real.pop()]
        return reduce(Waves.kronecker, [*factors, *(waves.symmetric() for waves in real)])

    def active_residual(self, x: Tensor) -> ResidualCovariance | None:
        r"""The difference :math:`\prod_i (v_i + r_i) - \prod_i v_i` for variances v and residuals r of the parts."""
        residuals = [kernel.residual_variance(x) for kernel in self.parts]
        if all(residual is None for residual in residuals):
            return None
        product, missing = x.new_ones(()), x.new_zeros(())
        for kernel, residual in zip(self.parts, residuals, strict=True):
            variance, lacking = kernel(x, diag=True), x.new_zeros(()) if residual is None else residual
            missing = missing * (variance + lacking) + product * lacking
            product = product * variance
        return ResidualCovariance.of_variance(missing)

    def _with(self, kernels: list[Kernel]) -> FeatureProductKernel:
        return FeatureProductKernel(*kernels, is_complex=self._is_complex).train(self.training)


_SMALL = 4
"""Exact features of at most so many columns multiply the number of features of a product."""


@approximates(ProductKernel)
class ProductFamily(CompositeFamily):
    """ProductKernel: products of sums are multiplied out, and other products taken feature by feature."""

    kernel: ProductKernel

    def products(self) -> list[list[Any]]:
        choices = itertools.product(*[part.products() for part in self.parts])
        return [[factor for factors in chosen for factor in factors] for chosen in choices]

    def with_features(self) -> FeatureProductKernel:
        """The product of kernels with features: feature by feature for those of one width that have a form for that."""
        parts = [part.with_features() for part in self.parts]
        forms = [part.columnwise() for part in parts]
        widths = [_width(form) for form in forms if form is not None]
        if len(widths) > 1 and len(set(widths)) == 1:
            parts = [part if form is None else form for part, form in zip(parts, forms, strict=True)]
        elif len(widths) > 1 and math.prod(widths) > _MANY:
            warnings.warn(
                f"the product of kernels with {widths} features (pairs count once) has all products of them; give them "
                "one width, or approximate the product of the exact kernels",
                stacklevel=4,
            )
        return FeatureProductKernel(*parts)

    def on_grid(self, request: Request) -> FourierGridKernel:
        return grid_kernel(self.kernel, request)

    def spectral_weights(self, at: GridFrequencies) -> SpectralWeights:
        """The products of densities of different columns, convolved with the lines of periodic factors."""
        weights, is_periodic = self._sampled(at)
        if not is_periodic or at.is_shifted:
            return weights
        zero = self._sampled(at.zero)[0].values[..., 0]
        prior = accurate_values(self.kernel, at.origin, at.origin, diag=True).squeeze(-1)
        beside_zero = variance_of_copies(self.kernel, at, weights.dims) - zero
        return weights.with_variance(prior, beside_zero, at._replace(dims=tuple(sorted(weights.dims))))

    def _sampled(self, at: GridFrequencies) -> tuple[SpectralWeights, bool]:
        """The products at these frequencies, and whether there are periodic factors."""
        moved, densities, periodic = at, [], []
        for part in self.kernel.kernels:
            seen = at.select(part)
            found = family(part).spectral_lines(seen)
            if found is None:
                densities.append(part)
            else:
                moved = moved._replace(dims=seen.dims).shifted(found[0])._replace(dims=at.dims)
                periodic.append((seen.dims, *found))
        if not densities:
            raise no_density(self.kernel)
        parts = [family(part).spectral_weights(moved.select(part)) for part in densities]
        weights = reduce(SpectralWeights.times, parts)
        for dims, lines, shares in reversed(periodic):
            if not weights.dims.issuperset(dims):
                raise no_density(self.kernel)
            weights = weights._replace(values=convolved(weights.values, lines, shares))
        return weights, bool(periodic)

    def approximate(self, request: Request) -> RandomFeatureKernel:
        request.check_no_map(self.kernel)
        products = self.products()
        if len(products) == 1:
            return _product(products[0], request)
        sums = [ProductKernel(*product) if len(product) > 1 else product[0] for product in products]
        return FeatureSumKernel(*count_priors_once(approximated_terms(sums, request)))


_MANY = 4096
"""A product with more features than these gets a warning."""


def _width(kernel: Any) -> int:
    """The number of features of a kernel with a single map, made or not."""
    holder = map_holders(kernel)[0]
    source: Any = holder.recipe if holder.feature_map is None else holder.feature_map
    return int(source.num_features)


def _product(kernels: list[Kernel], request: Request) -> FeatureProductKernel:
    """The product of kernels that are neither sums nor products."""
    factors = [family(kernel) for kernel in kernels]
    if not all(factor.is_scalar for factor in factors):
        raise ValueError(
            "expected scalar kernels in a product, got one of several outputs; multiply inside MultitaskKernel"
        )
    exact = [factor.exact_columns(request) for factor in factors]
    tasks = [factor.has_task_indices for factor in factors]
    small = [is_tasks or (c is not None and c <= _SMALL) for is_tasks, c in zip(tasks, exact, strict=True)]
    methods = [factor.columnwise_method(request) for factor in factors]
    open_ended = [method for method, is_small in zip(methods, small, strict=True) if not is_small]
    is_complex = request.method is not None and request.method.is_complex
    becomes_pairs = not is_complex and any(method is not None and method.is_complex for method in open_ended)
    width = request.num_features // 2 if becomes_pairs else request.num_features
    for columns, is_small, is_tasks in zip(exact, small, tasks, strict=True):
        width //= (columns or 1) if is_small and not is_tasks else 1
    groups = open_ended.count(None) + int(any(method is not None for method in open_ended))
    share = int(width ** (1.0 / max(groups, 1)) + 1e-9)
    parts = []
    for factor, is_small, method in zip(factors, small, methods, strict=True):
        part = request if is_small else replace(request, method=method or factor.own_method(request))
        if not is_small:
            columns = share - share % 2 if factor.has_pairs(part) else share
            if not columns and not factor.is_approximated:
                raise ValueError(
                    f"expected more features for a product of {len(factors)} parts, got {request.num_features}, which "
                    "leaves none to some of them; use more"
                )
            part = replace(part, num_features=columns)
        parts.append(factor.approximate(part))
    return FeatureProductKernel(*parts, is_complex=is_complex)


def _elementwise(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).mul_(math.sqrt(left.shape[-1]))


def _kronecker(left: Tensor, right: Tensor) -> Tensor:
    return (left.unsqueeze(-1) * right.unsqueeze(-2)).flatten(-2)
