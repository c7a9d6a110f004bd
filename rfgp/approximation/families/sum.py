"""Sums of kernels."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import Any

import torch
from gpytorch.kernels import AdditiveKernel, Kernel
from torch import Tensor

from ...functionals import Operator
from ...inference import OutputFactor
from ...inference.posterior.covariance import ResidualCovariance
from ..family import family
from ..field_grid_kernel import FieldGridKernel
from ..grid_kernel import FourierGridKernel, grid_kernel
from ..random_feature_kernel import KernelMoments, check_parts
from ..request import Request
from ..shared_weights import have_common_weights
from ..spectral_factor import SpectralFactor
from ..spectral_weights import GridFrequencies, SpectralWeights
from ..waves import Waves
from .composite import CompositeFamily, CompositeKernel


class FeatureSumKernel(CompositeKernel, AdditiveKernel):
    """A sum of kernels, whose features are those of its parts side by side."""

    def __init__(self, *kernels: Any) -> None:
        check_parts(kernels)
        if len({kernel.has_output_factor for kernel in kernels}) > 1:
            raise ValueError(
                "expected a sum of scalar kernels or one of kernels of several outputs, got both; give the scalar ones "
                "a covariance of the outputs by DecomposableKernel or MultitaskKernel"
            )
        AdditiveKernel.__init__(self, *kernels)

    @property
    def exact_kernel(self) -> AdditiveKernel:
        return AdditiveKernel(*[kernel.exact_kernel for kernel in self.parts])

    @property
    def num_scalar_features(self) -> int:
        return sum(kernel.num_scalar_features for kernel in self.parts)

    @property
    def has_output_factor(self) -> bool:
        return self.parts[0].has_output_factor

    @property
    def has_residual_covariance(self) -> bool:
        return all(kernel.has_residual_covariance for kernel in self.parts)

    def summands(self) -> list[Any]:
        return [self] if self.active_dims is not None else [term for part in self.parts for term in part.summands()]

    def active_features(self, x: Tensor) -> Tensor:
        if self.has_output_factor:
            return _concatenated([kernel.scalar_features(x) for kernel in self.parts])
        return _concatenated([kernel.all_features(x) for kernel in self.parts])

    def active_waves(self, input_dim: int) -> Waves:
        waves = [(kernel, kernel.waves(input_dim)) for kernel in self.parts]
        is_alike = not self.is_complex
        return Waves.concatenated([w if is_alike or kernel.is_complex else w.symmetric() for kernel, w in waves])

    def active_moments(self, x: Tensor, y: Tensor) -> KernelMoments | None:
        """The moments of the parts added up; None where some have none, or weights in common."""
        moments_of_parts = [moments for kernel in self.parts if (moments := kernel.moments(x, y)) is not None]
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
        return OutputFactor.concatenate([kernel.output_factor(operator) for kernel in self.parts])

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        if not self.has_output_factor:
            return super().feature_parameters()
        return iter({id(p): p for kernel in self.parts for p in kernel.feature_parameters()}.values())

    def _with(self, kernels: list[Kernel]) -> FeatureSumKernel:
        return FeatureSumKernel(*kernels).train(self.training)


class SumFamily(CompositeFamily):
    """AdditiveKernel, whose terms get an equal share of the features each."""

    kernel: AdditiveKernel

    def terms(self) -> list[Any]:
        return [term for part in self.parts for term in part.terms()]

    def products(self) -> list[list[Any]]:
        return [factors for part in self.parts for factors in part.products()]

    def approximate(self, request: Request) -> FeatureSumKernel:
        request.check_no_map(self.kernel)
        return self.compose(approximated_terms(self.terms(), request))

    def with_landmarks(self, request: Request) -> Any:
        """Landmarks of the whole sum; for several outputs, landmarks of every term with a share of the features."""
        terms = [family(term) for term in self.terms()]
        if all(term.is_scalar for term in terms):
            return super().with_landmarks(request)
        shares = _shares(request.num_features, [False] * len(terms))
        return self.compose([term.with_landmarks(replace(request, num_features=next(shares))) for term in terms])

    def on_grid(self, request: Request) -> FourierGridKernel:
        is_scalar = all(part.is_scalar for part in self.parts)
        return grid_kernel(self.kernel, request, FourierGridKernel if is_scalar else FieldGridKernel)

    def spectral_weights(self, at: GridFrequencies) -> SpectralWeights:
        parts = [family(part).spectral_weights(at.select(part)) for part in self.kernel.kernels]
        return reduce(lambda first, second: first.plus(second, at), parts)

    def spectral_factor(self, at: GridFrequencies, operator: Operator | None = None) -> SpectralFactor:
        parts = [family(part).spectral_factor(at.select(part), operator) for part in self.kernel.kernels]
        return reduce(SpectralFactor.plus, parts)

    def with_features(self) -> FeatureSumKernel:
        return self.compose([part.with_features() for part in self.parts])

    def compose(self, parts: list[Any]) -> FeatureSumKernel:
        """The sum of kernels with features."""
        return FeatureSumKernel(*parts)


def approximated_terms(terms: list[Kernel], request: Request) -> list[Any]:
    """The terms of a sum with features: exact ones take what they need, and others have equal shares of the rest."""
    families = [family(term) for term in terms]
    exact = [term.exact_columns(request) for term in families]
    open_ended = [term for term, columns in zip(families, exact, strict=True) if columns is None]
    rest = request.num_features - sum(columns or 0 for columns in exact)
    shares = _shares(rest, [term.has_pairs(request) for term in open_ended])
    widths = [next(shares) if columns is None else columns for columns in exact]
    parts = zip(families, widths, strict=True)
    return [term.approximate(replace(request, num_features=width)) for term, width in parts]


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


def _concatenated(parts: list[Tensor]) -> Tensor:
    batch = torch.broadcast_shapes(*[part.shape[:-2] for part in parts])
    return torch.cat([part.expand(*batch, *part.shape[-2:]) for part in parts], dim=-1)
