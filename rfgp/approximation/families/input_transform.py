"""Kernels of transformed inputs, with the features of their base kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ...kernels.input_transform import InputTransformKernel
from ..family import Family, approximates
from ..maps import SharedMap, WholeMaps
from ..request import Request
from .wrapper import WrapperFamily


@approximates(InputTransformKernel)
class InputTransformFamily(WrapperFamily):
    r"""InputTransformKernel, :math:`\phi(g(x))`. Landmarks are rows of its own inputs: the transform is learned."""

    kernel: InputTransformKernel
    passes_on: ClassVar[tuple[type[WholeMaps], ...]] = (SharedMap,)

    @property
    def inner_kernel(self) -> Kernel:
        inner: Kernel = self.kernel.base_kernel
        return inner

    def inside(self, request: Request) -> Request:
        mine = super().inside(request)
        if mine.x is None:
            return replace(mine, input_dim=None)
        with torch.no_grad():
            x = self.kernel.coordinates(mine.x)
        return replace(mine, x=x, input_dim=x.shape[-1])

    draw_landmarks = Family.draw_landmarks
    draw_grid = Family.draw_grid

    def inner_inputs(self, x: Tensor) -> Tensor:
        return self.inner.selected(self.kernel.coordinates(x))

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        yield from self.inner.feature_parameters()
        yield from self.kernel.transform.parameters()
