"""Kernels of several tasks that keep the features of their data kernel."""

from __future__ import annotations

from typing import Any

from gpytorch.kernels import Kernel, MultitaskKernel
from torch import Tensor

from ...functionals import Operator
from ...inference import OutputFactor
from ...inference.posterior.covariance import ResidualCovariance
from ...kernels.task_covariance import covariance_root, dense_covariance
from ...linalg import cholesky
from ..family import Family, KernelMoments, approximates, check_no_operator
from ..request import Request
from ..spectral_factor import SpectralFactor
from ..spectral_weights import GridFrequencies
from .wrapper import SameInputsFamily


@approximates(MultitaskKernel)
class MultitaskFamily(SameInputsFamily):
    r"""MultitaskKernel and DecomposableKernel: the Kronecker product of features and a root of the tasks.

    .. math:: k(x, y)\, \Gamma \approx (\phi(x) \otimes A)(\phi(y) \otimes A)^\top, \qquad A A^\top = \Gamma
    """

    kernel: MultitaskKernel
    has_output_factor = True

    @property
    def inner_kernel(self) -> Kernel:
        inner: Kernel = self.kernel.data_covar_module
        return inner

    # How a kernel is drawn

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
        scalar, tasks = self.inner.spectral_weights(at), self._tasks().double()
        values = scalar.roots(at)[..., None, None] * cholesky(tasks)
        return SpectralFactor(values, scalar.total[..., None, None] * tasks)

    # The features of a kernel with maps

    def check(self) -> None:
        super().check()
        if self.inner.has_output_factor or self.inner.is_complex:
            raise ValueError(
                "expected a scalar kernel with real features for several tasks, got another; use a real or :ctr form"
            )

    @property
    def total_outputscale(self) -> Tensor:
        return self.like.new_ones(())

    def active_moments(self, x: Tensor, y: Tensor) -> KernelMoments | None:
        moments = self.inner.active_moments(x, y)
        if moments is None:
            return None
        tasks = self._tasks()
        mean = (moments.mean[..., :, None, :, None] * tasks[:, None, :]).flatten(-2).flatten(-3, -2)
        return KernelMoments(mean, moments.variance * tasks.square().sum((-2, -1))[..., None, None])

    def active_residual(self, x: Tensor) -> ResidualCovariance | None:
        residual = self.inner.active_residual(x)
        return None if residual is None else residual.times(self._tasks())

    def output_factor(self, operator: Operator | None = None) -> OutputFactor:
        """The Cholesky factor of the covariance of the tasks, times the root of the data kernel's output scale."""
        check_no_operator(operator)
        scale: Any = self.inner.output_factor()
        return OutputFactor.kronecker(scale * covariance_root(self.kernel.task_covar_module), self.num_scalar_features)

    def separated(self) -> tuple[Family, Tensor] | None:
        return None if self.active_dims is not None else (self.inner, self._tasks().double())

    def _tasks(self) -> Tensor:
        return dense_covariance(self.kernel.task_covar_module)
