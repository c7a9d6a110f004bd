"""The exponential dot-product kernel."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .checked import CheckedKernel


class ExponentialDotProductKernel(CheckedKernel, Kernel):
    r"""The kernel :math:`k(x, y) = \exp(x^\top y / \ell^2)`, the softmax kernel of attention.

    :param kwargs: as for GPyTorch kernels: ``ard_num_dims``, ``batch_shape``, ``active_dims``, ``lengthscale_prior``,
        ``lengthscale_constraint``.

    Source: T Eq. 5.4.

    >>> import math
    >>> kernel = ExponentialDotProductKernel()
    >>> kernel.lengthscale = 1.0
    >>> bool((kernel(torch.ones(1, 2)).to_dense() - math.exp(2.0)).abs() < 1e-5)
    True
    """

    has_lengthscale = True

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        left, right = x1 / self.lengthscale, x2 / self.lengthscale
        return torch.exp((left * right).sum(-1) if diag else left @ right.mT)
