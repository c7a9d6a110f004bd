"""Kernels that are power series of the inner product."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .._support import checks
from .checked import CheckedKernel
from .parameter_free import ParameterFreeKernel


class DotProductKernel(ParameterFreeKernel):
    r"""The kernel :math:`k(x, y) = \sum_n a_n (x^\top y)^n` with fixed coefficients :math:`a_n \ge 0`.

    :param coefficients: a_0, a_1, ..., (p + 1,), non-negative, not all zero beyond a_0.
    :raises ValueError: for other coefficients, which give no kernel.

    Source: T Eq. 5.2.

    >>> kernel = DotProductKernel(torch.tensor([1.0, 0.0, 2.0]))
    >>> kernel(torch.ones(1, 2)).to_dense()
    tensor([[9.]])
    """

    coefficients: Tensor

    def __init__(self, coefficients: Tensor, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        values = checks.series(coefficients).to(torch.get_default_dtype())
        self.register_buffer("coefficients", values)

    def values(self, x1: Tensor, x2: Tensor) -> Tensor:
        inner = x1 @ x2.mT
        result = torch.zeros_like(inner)
        for coefficient in self.coefficients.flip(0):
            result = result * inner + coefficient
        return result


class ExponentialDotProductKernel(CheckedKernel, Kernel):
    r"""The kernel :math:`k(x, y) = \exp(x^\top y / \ell^2)`, the softmax kernel of attention, T Eq. 5.4.

    >>> kernel = ExponentialDotProductKernel()
    >>> kernel.lengthscale = 2.0
    >>> kernel(torch.ones(1, 4)).to_dense()
    tensor([[2.7183]], grad_fn=<...>)
    """

    has_lengthscale = True

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        left, right = x1 / self.lengthscale, x2 / self.lengthscale
        return torch.exp((left * right).sum(-1) if diag else left @ right.mT)
