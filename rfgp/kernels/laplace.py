"""The Laplace kernel."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..features import Laplace
from .checked import CheckedKernel


class LaplaceKernel(CheckedKernel, Kernel):
    r"""The kernel :math:`k(x, y) = \exp(-\sum_k |x_k - y_k| / \ell_k)`, a product of Matern-1/2 kernels of one column.

    The gradient of its features in the lengthscale does not converge: their frequencies are Cauchy variables.

    :param kwargs: as for GPyTorch kernels: ``ard_num_dims``, ``batch_shape``, ``active_dims``, ``lengthscale_prior``,
        ``lengthscale_constraint``.

    Source: Rahimi and Recht (2007), Figure 1.

    >>> kernel = LaplaceKernel()
    >>> kernel.lengthscale = 2.0
    >>> kernel(torch.zeros(1, 2), torch.ones(1, 2)).to_dense()
    tensor([[0.3679]], grad_fn=<...>)
    """

    has_lengthscale = True

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        left, right = x1 / self.lengthscale, x2 / self.lengthscale
        return torch.exp(-(left - right).abs().sum(-1)) if diag else Laplace().kernel(left, right)
