"""Cholesky factors of Hermitian positive definite matrices, and their determinants."""

from __future__ import annotations

import torch
from torch import Tensor

from .._torch import assert_in_graph
from .complex_numbers import check_square, real_part

_NO_FACTOR = (
    "expected a positive definite matrix, got one that is not to working precision; the noise is too small for the "
    "scale of the kernel, or inputs or parameters are not finite: raise the noise or rescale the data"
)


def cholesky(matrix: Tensor) -> Tensor:
    """Lower Cholesky factor of (a batch of) Hermitian positive definite matrices.

    :param matrix: (..., D, D), real or complex.
    :returns: the (..., D, D) lower triangular factor.
    :raises ValueError: where a matrix is not positive definite to working precision.

    >>> cholesky(4.0 * torch.eye(2))
    tensor([[2., 0.],
            [0., 2.]])
    """
    factor, info = torch.linalg.cholesky_ex(check_square(matrix))
    return check_factor(factor, info)


def cholesky_(matrix: Tensor, out: Tensor) -> Tensor:
    """Lower Cholesky factor of one matrix, written to ``out``, without gradients.

    :param matrix: (D, D), Hermitian positive definite.
    :param out: (D, D), in column-major order where no copy is to be made.
    :raises ValueError: where the matrix is not positive definite to working precision.

    >>> cholesky_(4.0 * torch.eye(2), out=torch.empty(2, 2).mT)
    tensor([[2., 0.],
            [0., 2.]])
    """
    info = torch.empty((), dtype=torch.int32, device=matrix.device)
    torch.linalg.cholesky_ex(matrix, out=(out, info))
    return check_factor(out, info)


def check_factor(factor: Tensor, info: Tensor) -> Tensor:
    """Return a Cholesky factor, or raise a ValueError where LAPACK says that there is none.

    >>> factor, info = torch.linalg.cholesky_ex(4.0 * torch.eye(2))
    >>> check_factor(factor, info) is factor
    True
    """
    is_factor = (info == 0).all() & torch.isfinite(real_part(factor.diagonal(dim1=-2, dim2=-1))).all()
    if torch.compiler.is_compiling():
        assert_in_graph(is_factor, _NO_FACTOR)
    elif not bool(is_factor):
        raise ValueError(_NO_FACTOR)
    return factor


def log_determinant(factor: Tensor) -> Tensor:
    """Logarithm of the determinant of L L^H from the Cholesky factor L, shape (...).

    >>> log_determinant(torch.eye(3))
    tensor(0.)
    """
    return 2.0 * real_part(check_square(factor, "factor").diagonal(dim1=-2, dim2=-1)).log().sum(-1)
