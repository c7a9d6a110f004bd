"""Kernels of several tasks that keep the features of their data kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import torch
from gpytorch.kernels import IndexKernel, Kernel, MultitaskKernel
from linear_operator import to_dense
from torch import Tensor

from .. import _checks
from ..inference import OutputFactor
from ..linalg import cholesky
from ..operators import Operator
from .decomposable import DecomposableKernel
from .feature_kernel import FeatureStructure, check_parts, no_operator, reference


class FeatureMultitaskKernel(FeatureStructure, MultitaskKernel):
    r"""A MultitaskKernel whose features are the Kronecker product of those of its data kernel and a root of the tasks.

    .. math:: k(x, y)\, \Gamma \approx (\phi(x) \otimes A)(\phi(y) \otimes A)^\top, \qquad A A^\top = \Gamma

    :param data_covar_module: a scalar kernel with features.
    :param kernel: the exact kernel, whose covariance of the tasks is shared.

    >>> import gpytorch, rfgp
    >>> exact = gpytorch.kernels.MultitaskKernel(gpytorch.kernels.RBFKernel(), num_tasks=2)
    >>> kernel = rfgp.approximate(exact, num_features=64, input_dim=3)
    >>> kernel(torch.randn(5, 3)).shape
    torch.Size([10, 10])
    """

    def __init__(self, data_covar_module: Any, kernel: MultitaskKernel) -> None:
        check_parts([data_covar_module])
        _checks.instance("kernel", kernel, MultitaskKernel, "a MultitaskKernel", "whose tasks are shared")
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
        """The exact kernel, with the same parameters."""
        return DecomposableKernel(
            self.data_covar_module.exact_kernel, self.task_covar_module, active_dims=self.active_dims
        )

    @property
    def is_complex(self) -> bool:
        """Never."""
        return False

    @property
    def version(self) -> int:
        """How many times the weights have been drawn anew."""
        return self.data_covar_module.version

    @property
    def num_scalar_features(self) -> int:
        """The number of columns of the features of the data kernel."""
        return self.data_covar_module.num_scalar_features

    @property
    def has_output_factor(self) -> bool:
        """Yes."""
        return True

    def active_features(self, x: Tensor) -> Tensor:
        """The scalar features of the data kernel, (..., N, D)."""
        return self.data_covar_module.active_features(x)

    def active_residual_variance(self, x: Tensor) -> Tensor | None:
        """That of the data kernel times the variances of the tasks, (..., N T)."""
        residual = self.data_covar_module.active_residual_variance(x)
        if residual is None:
            return None
        return (residual.unsqueeze(-1) * to_dense(self.task_covar_module.covar_matrix).diagonal()).flatten(-2)

    def output_factor(self, operator: Operator | None = None) -> OutputFactor:
        """The Cholesky factor of the covariance of the tasks, times the root of the data kernel's output scale."""
        no_operator(operator)
        root = cholesky(to_dense(self.task_covar_module.covar_matrix).double())
        return OutputFactor.kronecker(self.data_covar_module.output_factor() * root, self.num_scalar_features)

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters of the data kernel's scalar features."""
        return self.data_covar_module.feature_parameters()

    def resample(self, generator: torch.Generator | None = None) -> Self:
        """Draw new weights in place, and return the kernel."""
        self.data_covar_module.resample(generator)
        return self

    def __getitem__(self, index: Any) -> FeatureMultitaskKernel:
        if not self.batch_shape:
            return self
        raise ValueError("expected a kernel of several tasks without batch dimensions; make one per element")


class FeatureIndexKernel(FeatureStructure, Kernel):
    r"""The covariance of tasks for inputs that are the number of a task, one per row, with exact features.

    .. math:: \phi(i) = A_i, \qquad A A^\top = \Gamma

    A factor of a product with a data kernel, as in GPyTorch's models of one task per row.

    :param base_kernel: the exact kernel.

    >>> import gpytorch, rfgp
    >>> data, tasks = gpytorch.kernels.RBFKernel(active_dims=[0]), gpytorch.kernels.IndexKernel(2, active_dims=[1])
    >>> rfgp.approximate(data * tasks, num_features=64, input_dim=2).features(torch.zeros(3, 2)).shape
    torch.Size([3, 128])
    """

    def __init__(self, base_kernel: IndexKernel) -> None:
        _checks.instance("base_kernel", base_kernel, IndexKernel, "an IndexKernel", "such as IndexKernel(num_tasks=2)")
        super().__init__(active_dims=base_kernel.active_dims)
        self.base_kernel = base_kernel

    @property
    def exact_kernel(self) -> IndexKernel:
        """The base kernel."""
        return self.base_kernel

    @property
    def is_complex(self) -> bool:
        """Never."""
        return False

    @property
    def version(self) -> int:
        """Zero: there are no random weights."""
        return 0

    @property
    def num_scalar_features(self) -> int:
        """The number of tasks."""
        return self.base_kernel.covar_factor.shape[-2]

    def active_features(self, x: Tensor) -> Tensor:
        """The row of the Cholesky factor that belongs to the task, (..., N, 1) to (..., N, T)."""
        tasks, count = x.detach(), self.num_scalar_features
        if tasks.shape[-1] != 1 or not bool(((tasks == tasks.round()) & (tasks >= 0) & (tasks < count)).all()):
            raise ValueError(f"expected one column of task numbers from 0 to {count - 1}; select it by active_dims")
        root = cholesky(to_dense(self.base_kernel.covar_matrix).double()).to(x.dtype)
        return root[tasks.squeeze(-1).long()]

    def output_factor(self, operator: Operator | None = None) -> Tensor:
        """One, of shape (1, 1)."""
        no_operator(operator)
        return reference(self).new_ones(1, 1)

    def all_features(self, x: Tensor) -> Tensor:
        """The features of the full inputs, (..., N, d) to (..., N, T)."""
        return self.scalar_features(x)

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters of the covariance of the tasks."""
        return self.base_kernel.parameters()

    def resample(self, generator: torch.Generator | None = None) -> Self:
        """Return the kernel, which has no random weights."""
        return self
