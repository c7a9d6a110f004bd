"""Kernels of transformed inputs, with the features of their base kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..._support import checks
from ...inference.posterior.covariance import ResidualCovariance
from ...kernels.input_transform import InputTransformKernel, TransformsInputs
from ..family import Family, approximates, family
from ..random_feature_kernel import KernelMoments, RandomFeatureKernel, check_parts
from ..request import Request
from .wrapper import WrapperFamily


class FeatureInputKernel(TransformsInputs, RandomFeatureKernel):
    r"""An InputTransformKernel with the features of its base kernel, :math:`\phi(g(x))`."""

    def __init__(self, base_kernel: Kernel, kernel: InputTransformKernel) -> None:
        check_parts([base_kernel])
        checks.instance("kernel", kernel, InputTransformKernel, "an InputTransformKernel", "whose transform is shared")
        super().__init__(active_dims=kernel.active_dims)
        self.base_kernel = base_kernel
        self.transform = kernel.transform

    @property
    def exact_kernel(self) -> InputTransformKernel:
        exact = InputTransformKernel(self.base_kernel.exact_kernel, self.transform, active_dims=self.active_dims)
        return exact.train(self.training)

    @property
    def parts(self) -> list[Any]:
        return [self.base_kernel]

    @property
    def num_scalar_features(self) -> int:
        count: int = self.base_kernel.num_scalar_features
        return count

    def active_features(self, x: Tensor) -> Tensor:
        features: Tensor = self.base_kernel.scalar_features(self.coordinates(x))
        return features

    def active_moments(self, x: Tensor, y: Tensor) -> KernelMoments | None:
        moments: KernelMoments | None = self.base_kernel.moments(self.coordinates(x), self.coordinates(y))
        return moments

    def active_residual(self, x: Tensor) -> ResidualCovariance | None:
        residual: ResidualCovariance | None = self.base_kernel.residual_covariance(self.coordinates(x))
        return residual

    def output_factor(self, operator: Any = None) -> Any:
        return self.base_kernel.output_factor(operator)

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        yield from self.base_kernel.feature_parameters()
        yield from self.transform.parameters()

    def __getitem__(self, index: Any) -> FeatureInputKernel:
        return self._with(self.base_kernel[index]) if self.batch_shape else self

    def expand_batch(self, *sizes: Any) -> FeatureInputKernel:
        return self._with(self.base_kernel.expand_batch(*sizes))

    def _with(self, base_kernel: Kernel) -> FeatureInputKernel:
        exact = InputTransformKernel(Kernel(), self.transform, active_dims=self.active_dims)
        return FeatureInputKernel(base_kernel, exact).train(self.training)


@approximates(InputTransformKernel)
class InputTransformFamily(WrapperFamily):
    """InputTransformKernel. Landmarks are rows of its own inputs, since the transform is learned."""

    kernel: InputTransformKernel

    @property
    def inner(self) -> Family:
        return family(self.kernel.base_kernel)

    def around(self, kernel: Any) -> FeatureInputKernel:
        return FeatureInputKernel(kernel, self.kernel)

    def inside(self, request: Request) -> Request:
        mine = super().inside(request)
        if mine.x is None:
            return replace(mine, input_dim=None)
        with torch.no_grad():
            x = self.kernel.coordinates(mine.x)
        return replace(mine, x=x, input_dim=x.shape[-1])

    with_landmarks = Family.with_landmarks
    on_grid = Family.on_grid
