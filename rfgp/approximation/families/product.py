"""Products of kernels."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import Any

import torch
from gpytorch.kernels import ProductKernel
from torch import Tensor

from ...inference.posterior.covariance import ResidualCovariance
from ..family import Family, ScaledProduct, approximates, family
from ..request import Request
from ..shared_weights import have_common_weights
from ..spectral_weights import GridFrequencies, SpectralWeights, convolved, no_density, variance_of_copies
from ..values import accurate_values
from ..waves import Waves
from .composite import CompositeFamily, check_maps
from .grid import draw_grid
from .sum import concatenated, drawn_shares

_SMALL = 4
"""Exact features of at most so many columns multiply the number of features of a product."""
_MANY = 4096
"""A product with more features than these gets a warning."""


class FactorMaps(torch.nn.ModuleList):
    """The maps of the factors of a product.

    :param is_complex: whether complex features stay complex; else their real and imaginary parts are columns.
    :param takes_columns: whether factors with features of their own multiply element-wise, in unbiased columns.
    """

    def __init__(self, maps: list[torch.nn.Module], is_complex: bool = False, takes_columns: bool = False) -> None:
        super().__init__(maps)
        self.is_complex, self.takes_columns = is_complex, takes_columns


class ProductMaps(torch.nn.ModuleList):
    """The maps of a kernel that is multiplied out: those of the factors of every product."""


@approximates(ProductKernel)
class ProductFamily(CompositeFamily):
    r"""ProductKernel: products of sums are multiplied out, and other products taken feature by feature.

    .. math:: \phi(x)_\ell = D^{(m - 1)/2} \prod_{i=1}^m \phi_i(x)_\ell \qquad \text{or} \qquad
        \phi(x)_{\ell \ell'} = \phi_1(x)_\ell\, \phi_2(x)_{\ell'}

    Element-wise over independent parts of one width with unbiased columns, else row-wise Kronecker.
    """

    kernel: ProductKernel

    # How a kernel is drawn

    def products(self) -> list[ScaledProduct]:
        choices = itertools.product(*[part.products() for part in self.kernels])
        return [reduce(ScaledProduct.times, chosen) for chosen in choices]

    def draw(self, request: Request) -> torch.nn.Module:
        request.check_no_map(self.kernel)
        products: list[Family] = [FactorsFamily(self.kernel, product) for product in self.products()]
        if len(products) == 1:
            return ProductMaps([products[0].draw(request)])
        return ProductMaps(drawn_shares(products, request))

    def exact_maps(self) -> FactorMaps:
        return self.composed([part.exact_maps() for part in self.kernels])

    def composed(self, maps: list[torch.nn.Module]) -> FactorMaps:
        """The maps of a product whose factors have these: feature by feature for those of one width."""
        parts = [family(part, own) for part, own in zip(self.kernel.kernels, maps, strict=True)]
        forms = [part.columnwise() for part in parts]
        widths = [_width(form) for form in forms if form is not None]
        takes_columns = len(widths) > 1 and len(set(widths)) == 1
        if not takes_columns and len(widths) > 1 and math.prod(widths) > _MANY:
            warnings.warn(
                f"the product of kernels with {widths} features (pairs count once) has all products of them; give them "
                "one width, or approximate the product of the exact kernels",
                stacklevel=4,
            )
        return FactorMaps(maps, takes_columns=takes_columns)

    def draw_grid(self, request: Request) -> torch.nn.Module:
        return draw_grid(self.kernel, request)

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
        for part in self.kernels:
            seen = at.select(part.kernel)
            found = part.spectral_lines(seen)
            if found is None:
                densities.append(part)
            else:
                moved = moved._replace(dims=seen.dims).shifted(found[0])._replace(dims=at.dims)
                periodic.append((seen.dims, *found))
        if not densities:
            raise no_density(self.kernel)
        parts = [part.spectral_weights(moved.select(part.kernel)) for part in densities]
        weights = reduce(SpectralWeights.times, parts)
        for dims, lines, shares in reversed(periodic):
            if not weights.dims.issuperset(dims):
                raise no_density(self.kernel)
            weights = weights._replace(values=convolved(weights.values, lines, shares))
        return weights, bool(periodic)

    # The features of a kernel with maps

    def check(self) -> None:
        is_expanded = isinstance(self.maps, ProductMaps)
        count = len(self.products()) if is_expanded else len(self.kernels)
        check_maps(self.kernel, self.maps, ProductMaps if is_expanded else FactorMaps, count)
        Family.check(self)

    @property
    def parts(self) -> list[Family]:
        """The families of the products, after they are multiplied out where their maps are those."""
        if isinstance(self.maps, ProductMaps):
            return [FactorsFamily(self.kernel, product, maps) for product, maps in self._multiplied_out()]
        return [FactorsFamily(self.kernel, ScaledProduct((), tuple(self.kernel.kernels)), self.maps)]

    def _multiplied_out(self) -> list[tuple[ScaledProduct, Any]]:
        return list(zip(self.products(), self.maps, strict=True))

    @property
    def num_scalar_features(self) -> int:
        return sum(part.num_scalar_features for part in self.parts)

    def active_features(self, x: Tensor) -> Tensor:
        return concatenated([part.active_features(x) for part in self.parts])

    def active_waves(self, input_dim: int) -> Waves:
        parts, is_complex = self.parts, self.is_complex
        waves = [(part, part.active_waves(input_dim)) for part in parts]
        return Waves.concatenated([w if not is_complex or part.is_complex else w.symmetric() for part, w in waves])

    def active_residual(self, x: Tensor) -> ResidualCovariance | None:
        residuals = [residual for part in self.parts if (residual := part.active_residual(x)) is not None]
        return reduce(ResidualCovariance.plus, residuals) if residuals else None

    def active_leaves(self, x: Tensor | None) -> Iterator[tuple[Family, Tensor | None]]:
        for part in self.parts:
            yield from part.active_leaves(x)


class FactorsFamily(Family):
    """A product of kernels that are neither sums nor products, times output scales."""

    def __init__(self, kernel: ProductKernel, product: ScaledProduct, maps: FactorMaps | None = None) -> None:
        super().__init__(kernel, maps)
        self.product = product

    # How a kernel is drawn

    @property
    def factors(self) -> list[Family]:
        """The families of the factors before maps are drawn."""
        return [family(factor) for factor in self.product.factors]

    def exact_columns(self, request: Request) -> int | None:
        return self.factors[0].exact_columns(request) if len(self.product.factors) == 1 else None

    def has_pairs(self, request: Request) -> bool:
        if len(self.product.factors) == 1:
            return self.factors[0].has_pairs(request)
        return request.method is None or not request.method.is_complex

    def draw(self, request: Request) -> FactorMaps:
        factors = self.factors
        if not all(factor.is_scalar for factor in factors):
            raise _several_outputs()
        if len(factors) == 1:
            return FactorMaps([factors[0].draw(request)], request.method is not None and request.method.is_complex)
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
                        f"expected more features for a product of {len(factors)} parts, got {request.num_features}, "
                        "which leaves none to some of them; use more"
                    )
                part = replace(part, num_features=columns)
            parts.append(factor.draw(part))
        return FactorMaps(parts, is_complex)

    # The features of a kernel with maps

    @property
    def parts(self) -> list[Family]:
        parts = [family(factor, own) for factor, own in zip(self.product.factors, self.maps, strict=True)]
        if not self.maps.takes_columns:
            return parts
        return [part if (form := part.columnwise()) is None else form for part in parts]

    def check(self) -> None:
        super().check()
        parts = self.parts
        if any(part.has_output_factor for part in parts):
            raise _several_outputs()
        for i, part in enumerate(parts):
            if any(have_common_weights(part, other) for other in parts[:i]):
                raise ValueError(
                    "expected parts with weights of their own, got two with the same ones, which would bias their "
                    "product; make one of them with another seed"
                )

    @property
    def is_complex(self) -> bool:
        return self.maps.is_complex and super().is_complex

    @property
    def num_scalar_features(self) -> int:
        parts = self.parts
        columnwise = {part.num_scalar_features for part in parts if part.has_unbiased_columns}
        others = [part.num_scalar_features for part in parts if not part.has_unbiased_columns]
        becomes_pairs = not self.maps.is_complex and any(part.is_complex for part in parts)
        return math.prod([*columnwise, *others]) * (2 if becomes_pairs else 1)

    def active_features(self, x: Tensor) -> Tensor:
        groups: dict[int, list[Tensor]] = {}
        others = []
        for part in self.parts:
            features = part.all_features(x)
            if part.has_unbiased_columns:
                groups.setdefault(features.shape[-1], []).append(features)
            else:
                others.append(features)
        columns = [reduce(_elementwise, group) for group in groups.values()]
        product = reduce(_kronecker, [*columns, *others])
        for scale in self.product.scales:
            product = product * scale.outputscale.sqrt()[..., None, None].to(product.dtype)
        if product.is_complex() and not self.maps.is_complex:
            return torch.cat([product.real, product.imag], dim=-1)
        return product

    def active_waves(self, input_dim: int) -> Waves:
        groups: dict[int, list[Waves]] = {}
        others: list[Waves] = []
        real: list[Waves] = []
        for part in self.parts:
            waves = part.waves(input_dim)
            if part.has_unbiased_columns:
                groups.setdefault(part.num_scalar_features, []).append(waves)
            else:
                (others if part.is_complex else real).append(waves)
        factors = [*(reduce(Waves.elementwise, group) for group in groups.values()), *others] or [real.pop()]
        product = reduce(Waves.kronecker, [*factors, *(waves.symmetric() for waves in real)])
        return reduce(lambda waves, scale: waves.scaled(scale.outputscale.sqrt()), self.product.scales, product)

    def active_residual(self, x: Tensor) -> ResidualCovariance | None:
        r"""The difference :math:`\prod_i (v_i + r_i) - \prod_i v_i` for variances v and residuals r of the parts."""
        parts = self.parts
        residuals = [part.residual_variance(x) for part in parts]
        if all(residual is None for residual in residuals):
            return None
        product, missing = x.new_ones(()), x.new_zeros(())
        for part, residual in zip(parts, residuals, strict=True):
            variance, lacking = part.variance(x), x.new_zeros(()) if residual is None else residual
            missing = missing * (variance + lacking) + product * lacking
            product = product * variance
        for scale in self.product.scales:
            missing = missing * scale.outputscale.unsqueeze(-1)
        return ResidualCovariance.of_variance(missing)

    def active_leaves(self, x: Tensor | None) -> Iterator[tuple[Family, Tensor | None]]:
        for part in self.parts:
            yield from part.leaves(x)


def _several_outputs() -> ValueError:
    return ValueError(
        "expected scalar kernels in a product, got one of several outputs; multiply inside MultitaskKernel"
    )


def _width(form: Family) -> int:
    """The number of features of a kernel with a single map in unbiased columns, made or not."""
    leaf: Any = next(iter(form.active_leaves(None)))[0]
    return int(leaf.column_source.num_features)


def _elementwise(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).mul_(math.sqrt(left.shape[-1]))


def _kronecker(left: Tensor, right: Tensor) -> Tensor:
    return (left.unsqueeze(-1) * right.unsqueeze(-2)).flatten(-2)
