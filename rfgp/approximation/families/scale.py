"""Scaled kernels."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from ...functionals import Operator
from ...inference import OutputFactor
from ...inference.posterior.covariance import ResidualCovariance
from ..family import Family, KernelMoments, ScaledProduct, approximates
from ..method import FeatureMethod
from ..request import Request
from ..spectral_factor import SpectralFactor
from ..spectral_weights import GridFrequencies, SpectralWeights
from ..waves import Waves
from .wrapper import SameInputsFamily


@approximates(ScaleKernel)
class ScaleFamily(SameInputsFamily):
    """ScaleKernel, whose output scale multiplies the features of its base kernel.

    Scalar features are those of the base kernel, so that sums over rows hold for all scales.
    """

    kernel: ScaleKernel

    @property
    def inner_kernel(self) -> Kernel:
        inner: Kernel = self.kernel.base_kernel
        return inner

    # How a kernel is drawn

    def inside(self, request: Request) -> Request:
        # GPyTorch copies the active_dims of a base kernel to the ScaleKernel around it: they select once
        return request if self.kernel.base_kernel.active_dims is not None else super().inside(request)

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
    def measure_kernel(self) -> Kernel | None:
        return self.inner.measure_kernel

    def columnwise_method(self, request: Request) -> FeatureMethod | None:
        return self.inner.columnwise_method(request)

    def own_method(self, request: Request) -> FeatureMethod | None:
        return self.inner.own_method(request)

    def products(self) -> list[ScaledProduct]:
        """Those of the base kernel, times the scale; a ValueError for outer ``active_dims``."""
        products = self.inner.products()
        if len(products) == len(products[0].factors) == 1:
            return [ScaledProduct((), (self.kernel,))]
        if self.kernel.active_dims is not None:
            raise ValueError(
                "expected active_dims on the parts of a sum or a product inside a product, got them on a ScaleKernel "
                "around it; move them inside"
            )
        return [ScaledProduct((self.kernel, *product.scales), product.factors) for product in products]

    # The features of a kernel with maps

    @property
    def has_unbiased_columns(self) -> bool:
        return self.inner.has_unbiased_columns

    def columnwise(self) -> Family | None:
        inner = self.inner.columnwise()
        return None if inner is None else _ScaledColumns(self.kernel, self.maps, inner)

    @property
    def unscaled(self) -> Family:
        return self.inner.unscaled

    @property
    def total_outputscale(self) -> Tensor:
        return self.kernel.outputscale * self.inner.total_outputscale

    def separated(self) -> tuple[Family, Tensor] | None:
        parts = self.inner.separated()
        return None if parts is None else (parts[0], self.kernel.outputscale.double() * parts[1])

    def active_moments(self, x: Tensor, y: Tensor) -> KernelMoments | None:
        moments, scale = self.inner.active_moments(x, y), self.kernel.outputscale[..., None, None]
        return None if moments is None else KernelMoments(scale * moments.mean, scale.square() * moments.variance)

    def active_residual(self, x: Tensor) -> ResidualCovariance | None:
        residual = self.inner.active_residual(x)
        return None if residual is None else residual.scaled(self.kernel.outputscale)

    def active_waves(self, input_dim: int) -> Waves:
        return self.inner.active_waves(input_dim).scaled(self.kernel.outputscale.sqrt())

    def output_factor(self, operator: Operator | None = None) -> Tensor | OutputFactor:
        factor, root = self.inner.output_factor(operator), self.kernel.outputscale.sqrt()
        return factor.scaled(root) if isinstance(factor, OutputFactor) else root[..., None, None] * factor


class _ScaledColumns(ScaleFamily):
    """A scaled kernel around features in unbiased columns."""

    def __init__(self, kernel: ScaleKernel, maps: torch.nn.Module, inner: Family) -> None:
        Family.__init__(self, kernel, maps)
        self.inner = inner
