"""The terms of a Gaussian log evidence."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .cholesky_factor import cholesky, log_determinant
from .complex_numbers import check_numbers, check_square, real_part, squared_modulus


def dense_evidence(features: Tensor, noise: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    r"""The terms :math:`y^H (\Phi \Phi^H + S)^{-1} y` and :math:`\log|\Phi \Phi^H + S|`, from the N x N matrix.

    The quadratic form is :math:`(y - \Phi m)^H S^{-1} (y - \Phi m) + m^H m` at its minimum in m, which is found by the
    N x N Cholesky factor and refined: positive terms, stationary in m, also where the features have a low rank.

    :param features: (..., N, D), real or complex, float64 or complex128; with D >= N, since this costs N^2 D.
    :param noise: the diagonal of S, (..., N).
    :param values: y, (..., N, K).
    :returns: (..., K) and (...); differentiable.

    >>> features, y = torch.randn(3, 5, dtype=torch.float64), torch.ones(3, 1, dtype=torch.float64)
    >>> quadratic, log_determinant = dense_evidence(features, torch.ones(3, dtype=torch.float64), y)
    >>> torch.allclose(log_determinant, torch.logdet(features @ features.mT + torch.eye(3)))
    True
    """
    factor = cholesky(features @ features.mH + torch.diag_embed(noise).to(features.dtype))
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
    return quadratic, log_determinant(factor)


class _LogDeterminantAndQuadratic(torch.autograd.Function):
    """Both terms of a Gaussian evidence from one Cholesky factor, whose gradients need the inverse and no more."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, cross: Tensor) -> tuple[Tensor, Tensor]:
        factor = cholesky(matrix)
        dtype = torch.promote_types(matrix.dtype, cross.dtype)
        mean = torch.cholesky_solve(cross.to(dtype), factor.to(dtype))
        ctx.save_for_backward(factor, mean)
        ctx.cross_dtype = cross.dtype
        return log_determinant(factor), real_part((cross.conj() * mean).sum())

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
    :returns: two real scalars.
    :raises ValueError: where B is not positive definite to working precision.

    >>> b, h = 2.0 * torch.eye(2, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64)
    >>> round(float(log_determinant_and_quadratic(b, h)[1]), 6)
    1.0
    """
    if check_numbers(cross, "cross").shape != (len(check_square(matrix)), 1):
        raise ValueError(
            f"expected cross of shape ({len(matrix)}, 1), a row per row of matrix, got {tuple(cross.shape)}; reshape it"
        )
    return _LogDeterminantAndQuadratic.apply(matrix, cross)
