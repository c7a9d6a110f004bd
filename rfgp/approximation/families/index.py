"""Covariances of tasks for inputs that are the number of a task, one per row."""

from __future__ import annotations

import torch
from gpytorch.kernels import IndexKernel
from linear_operator import to_dense
from torch import Tensor

from ...linalg import cholesky
from ..family import Family, KernelMoments, approximates
from ..maps import OwnMaps
from ..request import Request


@approximates(IndexKernel)
class IndexFamily(Family):
    r"""IndexKernel of task indices with exact features, :math:`\phi(i) = A_i`, :math:`A A^\top = \Gamma`."""

    kernel: IndexKernel
    has_features = True
    has_task_indices = True

    def draw(self, request: Request) -> torch.nn.Module:
        return OwnMaps()

    def exact_maps(self) -> torch.nn.Module:
        return OwnMaps()

    def exact_columns(self, request: Request) -> int:
        return self.num_scalar_features

    @property
    def num_scalar_features(self) -> int:
        return self.kernel.covar_factor.shape[-2]

    @property
    def input_dim(self) -> int:
        return 1

    def active_features(self, x: Tensor) -> Tensor:
        """The row of the Cholesky factor that belongs to the task, (..., N, 1) to (..., N, T)."""
        tasks, count = x.detach(), self.num_scalar_features
        if tasks.shape[-1] != 1 or not bool(((tasks == tasks.round()) & (tasks >= 0) & (tasks < count)).all()):
            raise ValueError(f"expected one column of task numbers from 0 to {count - 1}; select it by active_dims")
        root = cholesky(to_dense(self.kernel.covar_matrix).double()).to(x.dtype)
        return root[tasks.squeeze(-1).long()]

    def active_moments(self, x: Tensor, y: Tensor) -> KernelMoments:
        exact = to_dense(self.kernel.forward(x, y))
        return KernelMoments(exact, torch.zeros_like(exact))
