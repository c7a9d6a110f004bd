"""Vector fields that are gradients."""

from __future__ import annotations

from typing import Any

from gpytorch.kernels import Kernel
from torch import Tensor

from ..functionals import Gradient, PolynomialMatrix, adjoint_matrix, matrix_product
from .derivatives import check_smoothness
from .operator_valued import OperatorValuedKernel


class CurlFreeKernel(OperatorValuedKernel):
    r"""The kernel of the gradient of a scalar Gaussian process: every sample is a field without curl.

    .. math:: K(x, y) = -\nabla \nabla^\top k(\tau), \qquad b(w) = w

    :param base_kernel: the kernel k of the potential: an RBFKernel, or a MaternKernel with nu 3/2 or 5/2.
    :raises ValueError: for another base kernel.

    Source: B 3.2.3, M Eq. 32 and 35.

    >>> import gpytorch, torch
    >>> CurlFreeKernel(gpytorch.kernels.RBFKernel())(torch.zeros(4, 3)).shape
    torch.Size([12, 12])
    """

    def __init__(self, base_kernel: Kernel, **kwargs: Any) -> None:
        check_smoothness(base_kernel, 1, "its gradient field")
        super().__init__(base_kernel, **kwargs)

    def num_outputs(self, input_dim: int) -> int:
        return input_dim

    def covariance(self, input_dim: int) -> PolynomialMatrix:
        gradient = Gradient().matrix(input_dim, 1)
        return matrix_product(gradient, adjoint_matrix(gradient))

    def factor(self, w: Tensor) -> Tensor:
        return w.unsqueeze(-1)

    def powers(self, input_dim: int) -> tuple[int, ...]:
        return (1,)
