"""Kernels that are a scalar kernel times a covariance of the outputs."""

from __future__ import annotations

from typing import Any

from gpytorch.kernels import Kernel, MultitaskKernel

from .._support import checks
from .checked import CheckedKernel


class DecomposableKernel(CheckedKernel, MultitaskKernel):
    r"""A separable kernel of several outputs: a MultitaskKernel with any covariance of the outputs.

    .. math:: K(x, y) = k(x, y)\, \Gamma

    :param data_covar_module: the scalar kernel k.
    :param task_covar_module: a module with :math:`\Gamma` (T, T) as ``covar_matrix``, such as a
        :class:`GraphLaplacianCovariance`, a :class:`ConstantCovariance` or a GPyTorch IndexKernel.

    Source: B 3.2.1.

    >>> import gpytorch, rfgp, torch
    >>> graph = rfgp.kernels.GraphLaplacianCovariance(torch.ones(3, 3))
    >>> DecomposableKernel(gpytorch.kernels.RBFKernel(), graph)(torch.zeros(4, 2)).shape
    torch.Size([12, 12])
    """

    def __init__(self, data_covar_module: Kernel, task_covar_module: Any, **kwargs: Any) -> None:
        checks.instance(
            "data_covar_module", data_covar_module, Kernel, "a scalar GPyTorch kernel", "such as RBFKernel()"
        )
        if getattr(task_covar_module, "covar_matrix", None) is None:
            raise ValueError(
                f"expected a module with a covar_matrix, got {type(task_covar_module).__name__}; use a "
                "GraphLaplacianCovariance, a ConstantCovariance or an IndexKernel"
            )
        super(MultitaskKernel, self).__init__(**kwargs)
        if data_covar_module.active_dims is not None:
            raise ValueError(
                "expected active_dims on the DecomposableKernel, got them on its data kernel, where GPyTorch ignores "
                "them; move them"
            )
        self.data_covar_module = data_covar_module
        self.task_covar_module = task_covar_module
        self.num_tasks = task_covar_module.covar_matrix.shape[-1]

    def __getitem__(self, index: Any) -> DecomposableKernel:
        if not self.batch_shape:
            return self
        tasks = self.task_covar_module[index] if isinstance(self.task_covar_module, Kernel) else self.task_covar_module
        return DecomposableKernel(self.data_covar_module[index], tasks, active_dims=self.active_dims)

    def expand_batch(self, *sizes: Any) -> DecomposableKernel:
        data = self.data_covar_module.expand_batch(*sizes)
        return DecomposableKernel(data, self.task_covar_module, active_dims=self.active_dims)
