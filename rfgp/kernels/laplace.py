"""The Laplace kernel."""

from __future__ import annotations

from ..features import Laplace
from .stationary import StationaryKernel


class LaplaceKernel(StationaryKernel):
    r"""The kernel :math:`k(x, y) = \exp(-\sum_k |x_k - y_k| / \ell_k)`, a product of Matern-1/2 kernels of one column.

    Gradients of its features in the lengthscale do not converge. Arguments are those of GPyTorch kernels.

    Source: Rahimi and Recht (2007), Figure 1.

    >>> import torch
    >>> kernel = LaplaceKernel()
    >>> kernel.lengthscale = 2.0
    >>> kernel(torch.zeros(1, 2), torch.ones(1, 2)).to_dense()
    tensor([[0.3679]], grad_fn=<...>)
    """

    spectrum = Laplace()
