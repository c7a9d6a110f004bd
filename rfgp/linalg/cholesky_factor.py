"""Cholesky factors of Hermitian positive definite matrices, and the terms of a Gaussian evidence that follow."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .._support.torch_names import assert_in_graph
from .complex_numbers import check_numbers, check_square, real_part, squared_modulus

NO_FACTOR = (
    "expected a positive definite matrix, got one that is not to working precision; the noise is too small for the "
    "scale of the kernel, or inputs or parameters are not finite: raise the noise or rescale the data"
)


class NoFactorError(ValueError):
    """A matrix is not positive definite to working precision.

    >>> str(NoFactorError())[:37]
    'expected a positive definite matrix, '
    """

    def __init__(self) -> None:
        super().__init__(NO_FACTOR)


def cholesky(matrix: Tensor) -> Tensor:
    """Lower Cholesky factor of (a batch of) Hermitian positive definite matrices, (..., D, D), real or complex.

    :raises ValueError: where a matrix is not positive definite to working precision.

    >>> cholesky(4.0 * torch.eye(2))
    tensor([[2., 0.],
            [0., 2.]])
    """
    return factor_of(check_square(matrix))


def factor_of(matrix: Tensor) -> Tensor:
    """:func:`cholesky` of a matrix that need not be checked."""
    return check_factor(*torch.linalg.cholesky_ex(matrix))


def cholesky_(matrix: Tensor, out: Tensor) -> Tensor:
    """Lower Cholesky factor of one matrix (D, D), written to ``out``, without gradients.

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
    is_factor = (info == 0).all() & torch.isfinite(factor.diagonal(dim1=-2, dim2=-1)).all()
    if torch.compiler.is_compiling():
        assert_in_graph(is_factor, NO_FACTOR)
    elif not bool(is_factor):
        raise NoFactorError
    return factor


def log_determinant(factor: Tensor) -> Tensor:
    """Logarithm of the determinant of L L^H from the Cholesky factor L, shape (...).

    >>> log_determinant(torch.eye(3))
    tensor(0.)
    """
    return log_determinant_of(check_square(factor, "factor"))


def log_determinant_of(factor: Tensor) -> Tensor:
    """:func:`log_determinant` of a factor that need not be checked."""
    return 2.0 * factor.diagonal(dim1=-2, dim2=-1).real.log().sum(-1)


def dense_evidence(features: Tensor, noise: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    r"""The terms :math:`y^H (\Phi \Phi^H + S)^{-1} y`, (..., K), and :math:`\log|\Phi \Phi^H + S|`, (...).

    Differentiable, at N^2 D; the quadratic form is a refined minimum, accurate also for features of low rank.

    :param features: (..., N, D), real or complex, float64 or complex128, with D >= N.
    :param noise: the diagonal of S, (..., N).
    :param values: y, (..., N, K).

    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> dense_evidence(one, one[0], one)[0]
    tensor([0.5000], dtype=torch.float64)
    """
    factor = factor_of(features @ features.mH + torch.diag_embed(noise).to(features.dtype))
    dtype, precision = torch.promote_types(features.dtype, values.dtype), 1.0 / noise.unsqueeze(-1)
    exact = features.to(dtype)

    def weights(rows: Tensor) -> Tensor:
        return exact.mH @ torch.cholesky_solve(rows, factor.to(dtype))

    with torch.no_grad():
        mean = weights(values.to(dtype))
        for _ in range(2):
            step = exact.mH @ (precision * (values - exact @ mean)) - mean
            mean = mean + step - weights(exact @ step)
    residual = values - exact @ mean
    quadratic = (precision * squared_modulus(residual)).sum(-2) + squared_modulus(mean).sum(-2)
    return quadratic, log_determinant_of(factor)


class _LogDeterminantAndQuadratic(torch.autograd.Function):
    """Both terms of a Gaussian evidence from one Cholesky factor, whose gradients need the inverse and no more."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, cross: Tensor) -> tuple[Tensor, Tensor]:
        factor = factor_of(matrix)
        dtype = torch.promote_types(matrix.dtype, cross.dtype)
        mean = torch.cholesky_solve(cross.to(dtype), factor.to(dtype))
        ctx.save_for_backward(factor, mean)
        ctx.cross_dtype = cross.dtype
        return log_determinant_of(factor), real_part((cross.conj() * mean).sum())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_log: Tensor, grad_quadratic: Tensor) -> tuple[Tensor, Tensor]:
        factor, mean = ctx.saved_tensors
        grad_matrix = torch.cholesky_inverse(factor).mul_(grad_log)
        explained = grad_quadratic * (mean @ mean.mH)
        grad_matrix -= explained if factor.is_complex() else real_part(explained)
        grad_cross = 2.0 * grad_quadratic * mean
        return grad_matrix, grad_cross if ctx.cross_dtype.is_complex else real_part(grad_cross)


def log_determinant_and_quadratic(matrix: Tensor, cross: Tensor) -> tuple[Tensor, Tensor]:
    r"""The terms :math:`\log|B|` and :math:`h^H B^{-1} h` of an evidence; differentiable once.

    :param matrix: B, (D, D), Hermitian positive definite, float64 or complex128.
    :param cross: h, (D, 1), of the same kind, or complex.
    :raises ValueError: where B is not positive definite to working precision.

    >>> b, h = 2.0 * torch.eye(2, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64)
    >>> round(float(log_determinant_and_quadratic(b, h)[1]), 6)
    1.0
    """
    if check_numbers(cross, "cross").shape != (len(check_square(matrix)), 1):
        raise ValueError(
            f"expected cross of shape ({len(matrix)}, 1), a row per row of matrix, got {tuple(cross.shape)}; reshape it"
        )
    return evidence_terms(matrix, cross)


def evidence_terms(matrix: Tensor, cross: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`log_determinant_and_quadratic` of what need not be checked."""
    return _LogDeterminantAndQuadratic.apply(matrix, cross)
