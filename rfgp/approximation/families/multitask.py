"""Kernels of several tasks that keep the features of their data kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from gpytorch.kernels import Kernel, MultitaskKernel
from torch import Tensor

from ..._support import checks
from ...functionals import Operator
from ...inference import OutputFactor
from ...inference.posterior.covariance import ResidualCovariance
from ...kernels.decomposable import DecomposableKernel
from ...kernels.task_covariance import covariance_root, dense_covariance
from ...linalg import cholesky
from ...linalg.frequency_grid import FrequencyGrid
from ..family import Family, approximates, family
from ..random_feature_kernel import KernelMoments, RandomFeatureKernel, check_no_operator, check_parts
from ..request import Request
from ..spectral_factor import SpectralFactor
from ..spectral_weights import GridFrequencies
from .wrapper import WrapperFamily


class FeatureMultitaskKernel(RandomFeatureKernel, MultitaskKernel):
    r"""A MultitaskKernel with the Kronecker product of features and a root of the tasks.

    .. math:: k(x, y)\, \Gamma \approx (\phi(x) \otimes A)(\phi(y) \otimes A)^\top, \qquad A A^\top = \Gamma
    """

    def __init__(self, data_covar_module: Any, kernel: MultitaskKernel) -> None:
        check_parts([data_covar_module])
        checks.instance("kernel", kernel, MultitaskKernel, "a MultitaskKernel", "whose tasks are shared")
        if data_covar_module.has_output_factor or data_covar_module.is_complex:
            raise ValueError(
                "expected a scalar kernel with real features for several tasks, got another; use a real or :ctr form"
            )
        Kernel.__init__(self, active_dims=kernel.active_dims)
        self.data_covar_module = data_covar_module
        self.task_covar_module = kernel.task_covar_module
        self.num_tasks = kernel.num_tasks

    @property
    def exact_kernel(self) -> DecomposableKernel:
        return DecomposableKernel(
            self.data_covar_module.exact_kernel, self.task_covar_module, active_dims=self.active_dims
        )

    @property
    def parts(self) -> list[Any]:
        return [self.data_covar_module]

    @property
    def exact_parts(self) -> list[Any]:
        return [self.task_covar_module]

    @property
    def num_scalar_features(self) -> int:
        return self.data_covar_module.num_scalar_features

    @property
    def has_output_factor(self) -> bool:
        return True

    @property
    def has_residual_covariance(self) -> bool:
        return self.data_covar_module.has_residual_covariance

    def active_features(self, x: Tensor) -> Tensor:
        return self.data_covar_module.active_features(x)

    def active_moments(self, x: Tensor, y: Tensor) -> KernelMoments | None:
        moments = self.data_covar_module.active_moments(x, y)
        if moments is None:
            return None
        tasks = dense_covariance(self.task_covar_module)
        mean = (moments.mean[..., :, None, :, None] * tasks[:, None, :]).flatten(-2).flatten(-3, -2)
        return KernelMoments(mean, moments.variance * tasks.square().sum((-2, -1))[..., None, None])

    def active_residual(self, x: Tensor) -> ResidualCovariance | None:
        residual: ResidualCovariance | None = self.data_covar_module.active_residual(x)
        return None if residual is None else residual.times(dense_covariance(self.task_covar_module))

    def output_factor(self, operator: Operator | None = None) -> OutputFactor:
        """The Cholesky factor of the covariance of the tasks, times the root of the data kernel's output scale."""
        check_no_operator(operator)
        root = covariance_root(self.task_covar_module)
        return OutputFactor.kronecker(self.data_covar_module.output_factor() * root, self.num_scalar_features)

    def separated(self) -> tuple[Any, Tensor] | None:
        if self.active_dims is not None:
            return None
        return self.data_covar_module, dense_covariance(self.task_covar_module).double()

    @property
    def active_frequency_grid(self) -> FrequencyGrid | None:
        grid: FrequencyGrid | None = self.data_covar_module.active_frequency_grid
        return grid

    @property
    def summed_amplitudes(self) -> Tensor | None:
        amplitudes: Tensor | None = self.data_covar_module.summed_amplitudes
        return amplitudes

    def active_summed_features(self, x: Tensor) -> Tensor:
        features: Tensor = self.data_covar_module.active_summed_features(x)
        return features

    def summed_parameters(self) -> Iterator[torch.nn.Parameter]:
        return self.data_covar_module.summed_parameters()

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        return self.data_covar_module.feature_parameters()

    def __getitem__(self, index: Any) -> FeatureMultitaskKernel:
        if not self.batch_shape:
            return self
        raise ValueError("expected a kernel of several tasks without batch dimensions; make one per element")


@approximates(MultitaskKernel)
class MultitaskFamily(WrapperFamily):
    """MultitaskKernel and DecomposableKernel, whose scalar features are those of the data kernel."""

    kernel: MultitaskKernel

    @property
    def inner(self) -> Family:
        return family(self.kernel.data_covar_module)

    @property
    def is_scalar(self) -> bool:
        return False

    def inside(self, request: Request) -> Request:
        if self.kernel.data_covar_module.active_dims is not None:
            raise ValueError(
                "expected active_dims on the MultitaskKernel, got them on its data kernel, where GPyTorch ignores "
                "them; move them"
            )
        return super().inside(request)

    def spectral_factor(self, at: GridFrequencies, operator: Operator | None = None) -> SpectralFactor:
        check_no_operator(operator)
        scalar, tasks = self.inner.spectral_weights(at), dense_covariance(self.kernel.task_covar_module).double()
        values = scalar.roots(at)[..., None, None] * cholesky(tasks)
        return SpectralFactor(values, scalar.total[..., None, None] * tasks)

    def around(self, kernel: Any) -> FeatureMultitaskKernel:
        return FeatureMultitaskKernel(kernel, self.kernel)
