"""What exact kernels without learnable parameters share: they are the same in every batch."""

from __future__ import annotations

import abc
import copy
from typing import Any, Self

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .._support.gpytorch_names import set_batch_shape
from .checked import CheckedKernel


class ParameterFreeKernel(CheckedKernel, Kernel, abc.ABC):
    """A kernel without parameters, whose ``batch_shape`` repeats it; buffers belong to all of the batch."""

    @abc.abstractmethod
    def values(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The kernel of (..., N, d) and (..., M, d), (..., N, M)."""

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        result = self.values(x1.unsqueeze(-2), x2.unsqueeze(-2)).flatten(-3) if diag else self.values(x1, x2)
        inner = 1 if diag else 2
        batch = torch.broadcast_shapes(self.batch_shape, result.shape[:-inner])
        return result.expand(*batch, *result.shape[-inner:])

    def __getitem__(self, index: Any) -> Self:
        return self._with(torch.empty(()).expand(self.batch_shape)[index].shape) if self.batch_shape else self

    def expand_batch(self, *sizes: Any) -> Self:
        return self._with(torch.Size(sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes))

    def _with(self, batch_shape: torch.Size) -> Self:
        twin = copy.deepcopy(self)  # a shallow copy of a GPyTorch kernel shares its __dict__
        set_batch_shape(twin, batch_shape)
        return twin
