"""Vector fields without divergence."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..functionals import Gradient, Laplacian, PolynomialMatrix, add, matrix_product
from .derivatives import check_smoothness
from .operator_valued import OperatorValuedKernel


class DivergenceFreeKernel(OperatorValuedKernel):
    r"""The kernel of divergence-free vector fields: every sample is a field without divergence.

    .. math:: K(x, y) = (\nabla \nabla^\top - I \Delta)\, k(\tau), \qquad b(w) = \|w\|\, U(w), \qquad
        b b^\top = \|w\|^2 I - w w^\top

    :param base_kernel: the kernel k: an RBFKernel, or a MaternKernel with nu 3/2 or 5/2.
    :raises ValueError: for another base kernel, and for inputs of a single column.

    Source: B 3.2.3, M Eq. 32 and 36; rank d - 1 from the errata.

    >>> import gpytorch, torch
    >>> DivergenceFreeKernel(gpytorch.kernels.RBFKernel())(torch.zeros(4, 2)).shape
    torch.Size([8, 8])
    """

    def __init__(self, base_kernel: Kernel, **kwargs: Any) -> None:
        check_smoothness(base_kernel, 1, "its divergence-free field")
        super().__init__(base_kernel, **kwargs)

    def num_outputs(self, input_dim: int) -> int:
        if input_dim < 2:
            raise ValueError(
                "expected inputs of at least two columns for a divergence-free field, got one; add a column"
            )
        return input_dim

    def covariance(self, input_dim: int) -> PolynomialMatrix:
        gradient = Gradient().matrix(self.num_outputs(input_dim), 1)
        outer = matrix_product(gradient, [[row[0] for row in gradient]])
        identity = Laplacian().matrix(input_dim, input_dim)
        return [[add(a, b, -1.0) for a, b in zip(*rows, strict=True)] for rows in zip(outer, identity, strict=True)]

    def factor(self, w: Tensor) -> Tensor:
        self.num_outputs(w.shape[-1])
        return w.norm(dim=-1)[..., None, None] * orthogonal_complement(w)

    def powers(self, input_dim: int) -> tuple[int, ...]:
        return (1,)


def orthogonal_complement(w: Tensor) -> Tensor:
    """An orthonormal basis of the complement of w, (..., d) to (..., d, d - 1), by a Householder reflection."""
    unit = torch.nn.functional.normalize(w, dim=-1)
    first = torch.zeros_like(unit)
    first[..., 0] = torch.where(unit[..., 0] < 0, -1.0, 1.0)
    v = unit + first
    identity = torch.eye(w.shape[-1], dtype=w.dtype, device=w.device)
    outer = v.unsqueeze(-1) * v.unsqueeze(-2)
    return (identity - 2.0 * outer / v.square().sum(-1)[..., None, None])[..., 1:]
