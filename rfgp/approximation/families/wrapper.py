"""Kernels around one other kernel, which answers for them."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ...functionals import Operator
from ...inference import OutputFactor
from ...inference.posterior.covariance import ResidualCovariance
from ...linalg.frequency_grid import FrequencyGrid
from ..family import Family, KernelMoments, family
from ..maps import WholeMaps
from ..method import FeatureMethod
from ..request import Request


class WrapperFamily(Family):
    """A kernel around another one, whose maps are its own."""

    passes_on: ClassVar[tuple[type[WholeMaps], ...]] = (WholeMaps,)

    def __init__(self, kernel: Any, maps: Any = None) -> None:
        super().__init__(kernel, maps)
        self.inner = family(self.inner_kernel, maps)
        """The family of the kernel inside, with the same maps."""

    @property
    @abc.abstractmethod
    def inner_kernel(self) -> Kernel:
        """The kernel inside."""

    def inside(self, request: Request) -> Request:
        """The request for the kernel inside."""
        return request.select(self.kernel)

    def inner_inputs(self, x: Tensor) -> Tensor:
        """What the kernel inside sees of selected inputs of this one."""
        return x

    # How a kernel is drawn

    def draw(self, request: Request) -> torch.nn.Module:
        return self.inner.draw(self.inside(request))

    def draw_landmarks(self, request: Request) -> torch.nn.Module:
        return self.inner.draw_landmarks(self.inside(request))

    def draw_grid(self, request: Request) -> torch.nn.Module:
        return self.inner.draw_grid(self.inside(request))

    def exact_maps(self) -> torch.nn.Module:
        return self.inner.exact_maps()

    @property
    def has_features(self) -> bool:
        return self.inner.has_features

    @property
    def mixes_methods(self) -> bool:
        return self.inner.mixes_methods

    def _applicable(self, input_dim: int) -> tuple[FeatureMethod, ...] | None:
        return self.inner.applicable(input_dim)

    def exact_columns(self, request: Request) -> int | None:
        return self.inner.exact_columns(self.inside(request))

    def has_pairs(self, request: Request) -> bool:
        return self.inner.has_pairs(self.inside(request))

    def truncates(self, method: FeatureMethod) -> bool:
        return self.inner.truncates(method)

    # The features of a kernel with maps

    @property
    def parts(self) -> list[Family]:
        return [self.inner]

    @property
    def num_scalar_features(self) -> int:
        return self.inner.num_scalar_features

    @property
    def has_output_factor(self) -> bool:
        return self.inner.has_output_factor

    @property
    def has_residual_covariance(self) -> bool:
        return self.inner.has_residual_covariance

    def output_factor(self, operator: Operator | None = None) -> Tensor | OutputFactor:
        return self.inner.output_factor(operator)

    @property
    def total_outputscale(self) -> Tensor:
        return self.inner.total_outputscale

    def active_features(self, x: Tensor) -> Tensor:
        return self.inner.active_features(self.inner_inputs(x))

    def active_real_features(self, x: Tensor) -> Tensor:
        return self.inner.active_real_features(self.inner_inputs(x))

    def matrix_features(self, x: Tensor) -> Tensor:
        return self._scaled(self.active_real_features(x))

    def all_features(self, x: Tensor) -> Tensor:
        return super().all_features(x) if self.has_output_factor else self._scaled(self.scalar_features(x))

    def _scaled(self, features: Tensor) -> Tensor:
        return features * self.total_outputscale.sqrt()[..., None, None].to(features.dtype)

    def active_moments(self, x: Tensor, y: Tensor) -> KernelMoments | None:
        return self.inner.active_moments(self.inner_inputs(x), self.inner_inputs(y))

    def active_residual(self, x: Tensor) -> ResidualCovariance | None:
        return self.inner.active_residual(self.inner_inputs(x))

    def active_leaves(self, x: Tensor | None) -> Iterator[tuple[Family, Tensor | None]]:
        yield from self.inner.active_leaves(None if x is None else self.inner_inputs(x))


class SameInputsFamily(WrapperFamily):
    """A kernel around another one that sees the same inputs, so that sums over rows are those of the kernel inside."""

    @property
    def active_frequency_grid(self) -> FrequencyGrid | None:
        return self.inner.active_frequency_grid

    @property
    def summed_amplitudes(self) -> Tensor | None:
        return self.inner.summed_amplitudes

    def active_summed_features(self, x: Tensor) -> Tensor:
        return self.inner.active_summed_features(x)

    def summed_parameters(self) -> Iterator[torch.nn.Parameter]:
        return self.inner.summed_parameters()

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        return self.inner.feature_parameters()
