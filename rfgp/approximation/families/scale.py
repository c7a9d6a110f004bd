"""Scaled kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from ..._support import checks
from ...functionals import Operator
from ...inference import OutputFactor
from ...inference.posterior.covariance import ResidualCovariance
from ...kernels.scale import SharedScaleKernel, scale_alone, with_scale_of
from ...linalg.frequency_grid import FrequencyGrid
from ..family import Family, approximates, family
from ..method import Method
from ..random_feature_kernel import KernelMoments, RandomFeatureKernel, check_parts
from ..request import Request
from ..spectral_factor import SpectralFactor
from ..spectral_weights import GridFrequencies, SpectralWeights
from ..waves import Waves
from .wrapper import WrapperFamily


class FeatureScaleKernel(RandomFeatureKernel, SharedScaleKernel):
    """The features of a base kernel times the root of the output scale that it shares with another kernel."""

    base_kernel: Any
    outputscale: Tensor

    def __init__(self, base_kernel: Kernel, scale_kernel: ScaleKernel) -> None:
        check_parts([base_kernel])
        checks.instance("scale_kernel", scale_kernel, ScaleKernel, "a ScaleKernel", "whose output scale is shared")
        SharedScaleKernel.__init__(self, base_kernel, scale_kernel)
        self.active_dims = scale_kernel.active_dims

    @property
    def exact_kernel(self) -> ScaleKernel:
        exact = SharedScaleKernel(self.base_kernel.exact_kernel, self)
        exact.active_dims = self.active_dims
        if not self.counts_priors:
            exact.hide_priors()
        return exact

    def columnwise(self) -> FeatureScaleKernel | None:
        inner = self.base_kernel.columnwise()
        return None if inner is None else self._with(inner, self)

    @property
    def is_complex(self) -> bool:
        return self.base_kernel.is_complex

    @property
    def has_unbiased_columns(self) -> bool:
        return self.base_kernel.has_unbiased_columns

    @property
    def has_residual_covariance(self) -> bool:
        return self.base_kernel.has_residual_covariance

    forward = ScaleKernel.forward
    num_outputs_per_input = ScaleKernel.num_outputs_per_input
    exact_parts = SharedScaleKernel.exact_parts

    @property
    def parts(self) -> list[Any]:
        return [self.base_kernel]

    @property
    def unscaled(self) -> Any:
        return self.base_kernel.unscaled

    @property
    def total_outputscale(self) -> Tensor:
        return self.outputscale * self.base_kernel.total_outputscale

    def separated(self) -> tuple[Any, Tensor] | None:
        parts = self.base_kernel.separated()
        return None if parts is None else (parts[0], self.outputscale.double() * parts[1])

    def active_features(self, x: Tensor) -> Tensor:
        return self.base_kernel.active_features(x)

    def active_moments(self, x: Tensor, y: Tensor) -> KernelMoments | None:
        moments, scale = self.base_kernel.active_moments(x, y), self.outputscale[..., None, None]
        return None if moments is None else KernelMoments(scale * moments.mean, scale.square() * moments.variance)

    def active_residual(self, x: Tensor) -> ResidualCovariance | None:
        residual: ResidualCovariance | None = self.base_kernel.active_residual(x)
        return None if residual is None else residual.scaled(self.outputscale)

    def active_waves(self, input_dim: int) -> Waves:
        return self.base_kernel.active_waves(input_dim).scaled(self.outputscale.sqrt())

    @property
    def num_scalar_features(self) -> int:
        return self.base_kernel.num_scalar_features

    @property
    def has_output_factor(self) -> bool:
        return self.base_kernel.has_output_factor

    def all_features(self, x: Tensor) -> Tensor:
        if self.has_output_factor:
            return super().all_features(x)
        scalar, root = self.scalar_features(x), self.total_outputscale.sqrt()[..., None, None]
        return scalar * root.to(scalar.dtype)

    def output_factor(self, operator: Operator | None = None) -> Tensor | OutputFactor:
        factor, root = self.base_kernel.output_factor(operator), self.outputscale.sqrt()
        return factor.scaled(root) if isinstance(factor, OutputFactor) else root[..., None, None] * factor

    @property
    def active_frequency_grid(self) -> FrequencyGrid | None:
        grid: FrequencyGrid | None = self.base_kernel.active_frequency_grid
        return grid

    @property
    def summed_amplitudes(self) -> Tensor | None:
        amplitudes: Tensor | None = self.base_kernel.summed_amplitudes
        return amplitudes

    def active_summed_features(self, x: Tensor) -> Tensor:
        features: Tensor = self.base_kernel.active_summed_features(x)
        return features

    def summed_parameters(self) -> Iterator[torch.nn.Parameter]:
        return self.base_kernel.summed_parameters()

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        return self.base_kernel.feature_parameters()

    def __getitem__(self, index: Any) -> FeatureScaleKernel:
        if not self.batch_shape:
            return self
        return self._with(self.base_kernel[index], scale_alone(self)[index])

    def expand_batch(self, *sizes: Any) -> FeatureScaleKernel:
        return self._with(self.base_kernel.expand_batch(*sizes), scale_alone(self).expand_batch(*sizes))

    def _with(self, base_kernel: Kernel, scale_kernel: ScaleKernel) -> FeatureScaleKernel:
        scale_kernel.active_dims = self.active_dims
        return FeatureScaleKernel(base_kernel, scale_kernel).train(self.training)


@approximates(ScaleKernel)
class ScaleFamily(WrapperFamily):
    """ScaleKernel, whose output scale multiplies the features of its base kernel."""

    kernel: ScaleKernel

    @property
    def inner(self) -> Family:
        return family(self.kernel.base_kernel)

    def inside(self, request: Request) -> Request:
        # GPyTorch copies the active_dims of a base kernel to the ScaleKernel around it: they select once
        return request if self.kernel.base_kernel.active_dims is not None else super().inside(request)

    def around(self, kernel: Any) -> FeatureScaleKernel:
        return FeatureScaleKernel(kernel, self.kernel)

    def spectral_weights(self, at: GridFrequencies) -> SpectralWeights:
        return self.inner.spectral_weights(self._inside(at)).scaled(self.kernel.outputscale)

    def spectral_factor(self, at: GridFrequencies, operator: Operator | None = None) -> SpectralFactor:
        return self.inner.spectral_factor(self._inside(at), operator).scaled(self.kernel.outputscale)

    def spectral_lines(self, at: GridFrequencies) -> tuple[Tensor, Tensor] | None:
        lines = self.inner.spectral_lines(self._inside(at))
        return None if lines is None else (lines[0], self.kernel.outputscale.double().unsqueeze(-1) * lines[1])

    def _inside(self, at: GridFrequencies) -> GridFrequencies:
        return at if self.kernel.base_kernel.active_dims is not None else at.select(self.kernel)

    @property
    def is_scalar(self) -> bool:
        return self.inner.is_scalar

    @property
    def has_task_indices(self) -> bool:
        return self.inner.has_task_indices

    @property
    def is_approximated(self) -> bool:
        return self.inner.is_approximated

    @property
    def unscaled(self) -> Any:
        return self.inner.unscaled

    @property
    def measure_kernel(self) -> Kernel | None:
        return self.inner.measure_kernel

    def columnwise_method(self, request: Request) -> Method | None:
        return self.inner.columnwise_method(request)

    def own_method(self, request: Request) -> Method | None:
        return self.inner.own_method(request)

    def products(self) -> list[list[Any]]:
        """Those of the base kernel with the scale at the first factors; a ValueError for outer ``active_dims``."""
        products = self.inner.products()
        if len(products) == len(products[0]) == 1:
            return [[self.kernel]]
        if self.kernel.active_dims is not None:
            raise ValueError(
                "expected active_dims on the parts of a sum or a product inside a product, got them on a ScaleKernel "
                "around it; move them inside"
            )
        return [[with_scale_of(self.kernel, first), *others] for first, *others in products]
