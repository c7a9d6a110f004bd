"""Covariances of tasks for inputs that are the number of a task, one per row."""

from __future__ import annotations

import torch
from gpytorch.kernels import IndexKernel
from linear_operator import to_dense
from torch import Tensor

from ..._support import checks
from ...linalg import cholesky
from ..exact_parameters import ExactParameters
from ..family import Family, approximates
from ..random_feature_kernel import KernelMoments, RandomFeatureKernel
from ..request import Request


class FeatureIndexKernel(ExactParameters, RandomFeatureKernel):
    r"""An IndexKernel of task indices with exact features, :math:`\phi(i) = A_i`, :math:`A A^\top = \Gamma`."""

    base_kernel: IndexKernel

    def __init__(self, base_kernel: IndexKernel) -> None:
        checks.instance("base_kernel", base_kernel, IndexKernel, "an IndexKernel", "such as IndexKernel(num_tasks=2)")
        super().__init__(active_dims=base_kernel.active_dims)
        self.base_kernel = base_kernel

    @property
    def num_scalar_features(self) -> int:
        return self.base_kernel.covar_factor.shape[-2]

    def active_features(self, x: Tensor) -> Tensor:
        """The row of the Cholesky factor that belongs to the task, (..., N, 1) to (..., N, T)."""
        tasks, count = x.detach(), self.num_scalar_features
        if tasks.shape[-1] != 1 or not bool(((tasks == tasks.round()) & (tasks >= 0) & (tasks < count)).all()):
            raise ValueError(f"expected one column of task numbers from 0 to {count - 1}; select it by active_dims")
        root = cholesky(to_dense(self.base_kernel.covar_matrix).double()).to(x.dtype)
        return root[tasks.squeeze(-1).long()]

    def active_moments(self, x: Tensor, y: Tensor) -> KernelMoments:
        exact = to_dense(self.base_kernel.forward(x, y))
        return KernelMoments(exact, torch.zeros_like(exact))


@approximates(IndexKernel)
class IndexFamily(Family):
    """IndexKernel, whose features are exact."""

    kernel: IndexKernel

    @property
    def has_task_indices(self) -> bool:
        return True

    @property
    def has_features(self) -> bool:
        return True

    def approximate(self, request: Request) -> FeatureIndexKernel:
        return FeatureIndexKernel(self.kernel)

    def with_features(self) -> FeatureIndexKernel:
        return FeatureIndexKernel(self.kernel)

    def exact_columns(self, request: Request) -> int:
        return self.kernel.covar_factor.shape[-2]
