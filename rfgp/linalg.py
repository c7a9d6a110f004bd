"""Fast Walsh-Hadamard transform, and Hermitian Gram matrices and Cholesky factors in float64."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import _checks

_TRANSFORM_BLOCK = 32
_GRAM_COLUMNS = 512
_CHUNK_BYTES = 24 * 2**20


@functools.lru_cache(maxsize=64)
def _cached_hadamard(order: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    matrix = torch.ones(1, 1, dtype=dtype, device=device)
    sylvester = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=dtype, device=device)
    while len(matrix) < order:
        matrix = torch.kron(sylvester, matrix)
    return matrix


def hadamard(order: int, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Tensor:
    r"""Sylvester's Hadamard matrix :math:`H_n`, with entries :math:`\pm 1` and :math:`H_n H_n^\top = n I`.

    :param order: the number of rows n, a power of two.
    :param dtype: the dtype of the result; the default dtype where it is None.
    :param device: the device of the result; the CPU where it is None.
    :returns: an (n, n) tensor.
    :raises ValueError: where the order is not a power of two.

    >>> hadamard(2)
    tensor([[ 1.,  1.],
            [ 1., -1.]])
    """
    if not isinstance(order, int) or isinstance(order, bool) or order < 1 or order & (order - 1):
        raise ValueError(f"expected a power of two as the order of a Hadamard matrix, got {order!r}; pad the input")
    dtype = torch.get_default_dtype() if dtype is None else _checks.floating_dtype("dtype", dtype)
    return _cached_hadamard(order, dtype, device or torch.device("cpu")).clone()


def fwht(x: Tensor, dim: int = -1) -> Tensor:
    r"""Fast Walsh-Hadamard transform :math:`H_n x` along one dimension, unnormalised.

    The transform is a Kronecker product, :math:`H_{ab} = H_a \otimes H_b`, so that it factors into products with
    matrices of at most 32 rows: O(n log n) work in a handful of matrix products, on every device, with autograd.

    :param x: a real tensor of any float dtype whose size n along ``dim`` is a power of two.
    :param dim: the dimension to transform.
    :returns: a tensor of the same shape and dtype.
    :raises ValueError: where n is not a power of two.

    >>> fwht(torch.tensor([1.0, 0.0, 0.0, 2.0]))
    tensor([ 3., -1., -1.,  3.])
    """
    size = _checks.floating(x, "x").dim()
    if not isinstance(dim, int) or not -size <= dim < size:
        raise ValueError(f"expected a dimension from {-size} to {size - 1} for dim, got {dim!r}; choose one of these")
    dim = dim % size
    order = x.shape[dim]
    if order < 1 or order & (order - 1):
        raise ValueError(f"expected a power of two along dimension {dim}, got {order}; pad the input with zeros")
    before, after = math.prod(x.shape[:dim]), math.prod(x.shape[dim + 1 :])
    result, done = x, 1
    while done < order:
        factor = min(_TRANSFORM_BLOCK, order // done)
        matrix = _cached_hadamard(factor, x.dtype, x.device)
        inner = (order // (done * factor)) * after
        if inner == 1:
            result = result.reshape(-1, factor) @ matrix
        else:
            result = matrix @ result.reshape(before * done, factor, inner)
        done *= factor
    return result.reshape(x.shape)


def next_power_of_two(n: int) -> int:
    """The smallest power of two that is at least ``n``.

    :param n: a positive integer.
    :raises ValueError: where it is not.

    >>> next_power_of_two(5)
    8
    """
    return 1 << (_checks.positive_integer("n", n) - 1).bit_length()


def accurate_dtype(dtype: torch.dtype) -> torch.dtype:
    """The double-precision dtype of the same kind: complex128 for complex dtypes, else float64."""
    return torch.complex128 if dtype.is_complex else torch.float64


def row_chunks(num_rows: int, num_columns: int, itemsize: int = 8) -> list[slice]:
    """Slices of rows that keep a chunk of a tall matrix near 24 MiB, where allocators reuse memory and caches help.

    :param num_rows: the number of rows N.
    :param num_columns: the number of columns.
    :param itemsize: bytes per number.
    """
    rows = min(max(_CHUNK_BYTES // (num_columns * itemsize), 512), 8192)
    return [slice(start, min(start + rows, num_rows)) for start in range(0, num_rows, rows)]


def add_gram_(
    gram: Tensor,
    cross: Tensor,
    features: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    product_dtype: torch.dtype = torch.float64,
) -> None:
    """Add the upper block triangle of the weighted Gram matrix, and the cross products, in place and without gradients.

    :param gram: (D, D), float64 or complex128; complete it with :func:`mirror_` after the last addition.
    :param cross: (D, K), float64 or complex128.
    :param features: (N, D), real or complex.
    :param targets: (N, K), real or complex.
    :param weights: (N,), real; ones where it is None.
    :param product_dtype: the dtype of the products inside a chunk of rows, float32 or float64.
    """
    width = gram.shape[-1]
    product = torch.promote_types(product_dtype, features.dtype) if features.is_complex() else product_dtype
    for rows in row_chunks(features.shape[0], width, product.itemsize):
        chunk = features[rows].to(product)
        weighted = chunk if weights is None else chunk * weights[rows, None].to(product.to_real())
        for start in range(0, width, _GRAM_COLUMNS):
            stop = min(start + _GRAM_COLUMNS, width)
            block, left, right = gram[start:stop, start:], chunk[:, start:stop].mH, weighted[:, start:]
            if block.dtype == product:
                block.addmm_(left, right)
            else:
                block += left @ right
        cross += weighted.mH.to(cross.dtype) @ targets[rows].to(cross.dtype)


def mirror_(gram: Tensor) -> Tensor:
    """Copy the upper triangle of (D, D) Hermitian matrix onto the lower one, in place and block by block."""
    width = gram.shape[-1]
    for start in range(0, width, _GRAM_COLUMNS):
        stop = min(start + _GRAM_COLUMNS, width)
        gram[stop:, start:stop] = gram[start:stop, stop:].mH
        diagonal = gram[start:stop, start:stop]
        diagonal.copy_(torch.triu(diagonal) + torch.triu(diagonal, 1).mH)
    return gram


class _Gram(torch.autograd.Function):
    """Weighted Gram and cross products of tall matrices, row chunk by row chunk; nothing of size N x D is kept."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, targets: Tensor, weights: Tensor | None, product_dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(features, targets, weights)
        exact = torch.promote_types(accurate_dtype(features.dtype), accurate_dtype(targets.dtype))
        width = features.shape[-1]
        gram = features.new_zeros(width, width, dtype=accurate_dtype(features.dtype))
        cross = features.new_zeros(width, targets.shape[-1], dtype=exact)
        add_gram_(gram, cross, features, targets, weights, product_dtype)
        return mirror_(gram), cross

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_gram: Tensor, grad_cross: Tensor) -> tuple[Tensor | None, ...]:
        features, targets, weights = ctx.saved_tensors
        want_features, want_targets, want_weights, _ = ctx.needs_input_grad
        symmetric = grad_gram + grad_gram.mH
        grad_features = torch.empty_like(features if want_features else features[:0])
        grad_targets = torch.empty_like(targets if want_targets else targets[:0])
        grad_weights = torch.empty_like(weights if want_weights else targets[:0])
        for rows in row_chunks(features.shape[0], features.shape[1], grad_gram.dtype.itemsize):
            chunk = features[rows].to(grad_gram.dtype)
            target = targets[rows].to(grad_cross.dtype)
            from_gram = chunk @ symmetric if want_features or want_weights else torch.zeros_like(chunk)
            from_cross = target @ grad_cross.mH
            scale = 1.0 if weights is None else weights[rows, None].double()
            if want_features:
                grad = scale * (from_gram + from_cross)
                grad_features[rows] = (grad if features.is_complex() else _real(grad)).to(features.dtype)
            if want_targets:
                grad = scale * (chunk.to(grad_cross.dtype) @ grad_cross)
                grad_targets[rows] = (grad if targets.is_complex() else _real(grad)).to(targets.dtype)
            if want_weights:
                grad = _real(chunk.conj() * (0.5 * from_gram + from_cross)).sum(-1)
                grad_weights[rows] = grad.to(weights.dtype)
        return (
            grad_features if want_features else None,
            grad_targets if want_targets else None,
            grad_weights if want_weights else None,
            None,
        )


def _real(x: Tensor) -> Tensor:
    return x.real if x.is_complex() else x


def gram(
    features: Tensor, targets: Tensor, weights: Tensor | None = None, product_dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    r"""Gram matrix :math:`\Phi^H W \Phi` and cross products :math:`\Phi^H W Y` with real weights W = diag(w).

    Only the upper block triangle of the Gram matrix is computed, and the rows are taken in chunks, so that nothing of
    the size of ``features`` is allocated, forwards or backwards. Sums are in float64 (complex128 for complex input).

    :param features: (N, D), real or complex.
    :param targets: (N, K), real or complex.
    :param weights: (N,), real; ones where it is None.
    :param product_dtype: the dtype of the products inside a chunk of rows; their sum is in float64 all the same.
    :returns: the (D, D) Gram matrix and the (D, K) cross products; differentiable once in all three tensors.
    :raises ValueError: for other tensors.

    >>> g, h = gram(torch.tensor([[1.0, 2.0], [0.0, 1.0]]), torch.tensor([[1.0], [1.0]]))
    >>> g
    tensor([[1., 2.],
            [2., 5.]], dtype=torch.float64)
    """
    for name, value in (("features", features), ("targets", targets)):
        if _numbers(value, name).dim() != 2 or len(value) != len(features):
            raise ValueError(
                f"expected features (N, D) and targets (N, K), got {name} of shape {tuple(value.shape)}; "
                "pass a row of each per row of the data"
            )
    if weights is not None:
        _checks.one_per_row(_checks.floating(weights, "weights"), features, "weights")
    return _Gram.apply(features, targets, weights, _checks.floating_dtype("product_dtype", product_dtype))


def _numbers(value: Any, name: str) -> Tensor:
    """Return ``value``, or raise where it is not a dense tensor of floating-point or complex numbers."""
    if not _checks.tensor(value, name).is_complex():
        _checks.floating(value, name)
    return value


def _square(matrix: Any, name: str = "matrix") -> Tensor:
    """Return ``matrix``, or raise where it is not a dense tensor (..., D, D) of numbers."""
    if _numbers(matrix, name).dim() < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(f"expected {name} of shape (..., D, D), got {tuple(matrix.shape)}; pass square matrices")
    return matrix


def cholesky(matrix: Tensor) -> Tensor:
    """Lower Cholesky factor of (a batch of) Hermitian positive definite matrices.

    :param matrix: (..., D, D), real or complex.
    :returns: the (..., D, D) lower triangular factor.
    :raises ValueError: where a matrix is not positive definite to working precision.
    """
    factor, info = torch.linalg.cholesky_ex(_square(matrix))
    return check_factor(factor, info)


def cholesky_(matrix: Tensor, out: Tensor) -> Tensor:
    """Lower Cholesky factor of one matrix, written to ``out``, without gradients.

    :param matrix: (D, D), Hermitian positive definite.
    :param out: (D, D), in column-major order where no copy is to be made.
    :raises ValueError: where the matrix is not positive definite to working precision.
    """
    info = torch.empty((), dtype=torch.int32, device=matrix.device)
    torch.linalg.cholesky_ex(matrix, out=(out, info))
    return check_factor(out, info)


FLOAT32_NOISE = 1e-2
"""Gram products are taken in float32 where the noise exceeds this share of the largest variance of the function."""
_SAMPLE = 64


def sample_rows(rows: Tensor) -> Tensor:
    """At most some hundred evenly spaced rows of (..., N, D), which stand for all of them."""
    return rows.detach()[..., :: max(1, rows.shape[-2] // _SAMPLE), :]


def largest_square(features: Tensor) -> float:
    """The largest squared norm of the rows of features (..., N, D)."""
    return float(torch.linalg.vector_norm(features.detach(), dim=-1).max()) ** 2


def product_dtype(dtype: torch.dtype, noise: float, variance: Callable[[], float]) -> torch.dtype:
    r"""The dtype of Gram products: float64, or float32 for float32 features where the noise drowns their rounding.

    .. math:: B = I + \sum_i \overline{\phi_i} \phi_i^\top / s, \qquad s > 10^{-2} \max_i \|\phi_i\|^2

    The smallest eigenvalue of B is one. A row whose products are rounded to float32 changes B by about
    :math:`\epsilon \|\phi_i\|^2 / s`, with other signs than the next. What decides is therefore the noise relative to
    the variance of the function, in whatever units.

    :param dtype: the dtype of the features.
    :param noise: the smallest noise variance s.
    :param variance: gives the largest variance :math:`\|\phi_i\|^2`, output scale included, of some rows; called for
        float32 features only.

    >>> product_dtype(torch.float32, 0.1, lambda: 1.0), product_dtype(torch.float32, 0.1, lambda: 20.0)
    (torch.float32, torch.float64)
    """
    is_single = dtype.to_real() == torch.float32
    return torch.float32 if is_single and noise > FLOAT32_NOISE * variance() else torch.float64


def is_ill_conditioned(diagonal: Tensor) -> bool:
    r"""Whether half of the digits of float64 are lost to a matrix whose smallest eigenvalue is one or more.

    :param diagonal: its diagonal, (..., D), whose largest entry is a lower bound of the condition number.
    """
    return float(_real(diagonal.detach()).max()) > torch.finfo(torch.float64).eps ** -0.5


def check_factor(factor: Tensor, info: Tensor) -> Tensor:
    """Return a Cholesky factor, or raise a ValueError where LAPACK says that there is none."""
    if bool((info != 0).any()) or not bool(torch.isfinite(_real(factor.diagonal(dim1=-2, dim2=-1))).all()):
        raise ValueError(
            "expected a positive definite matrix, got one that is not to working precision; the noise is too small "
            "for the scale of the kernel, or inputs or parameters are not finite: raise the noise or rescale the data"
        )
    return factor


def log_determinant(factor: Tensor) -> Tensor:
    """Logarithm of the determinant of L L^H from the Cholesky factor L, shape (...)."""
    return 2.0 * _real(_square(factor, "factor").diagonal(dim1=-2, dim2=-1)).log().sum(-1)


def dense_evidence(features: Tensor, noise: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    r"""The terms :math:`y^H (\Phi \Phi^H + S)^{-1} y` and :math:`\log|\Phi \Phi^H + S|`, from the N x N matrix.

    The quadratic form is :math:`(y - \Phi m)^H S^{-1} (y - \Phi m) + m^H m` at its minimum in m, which is found by the
    N x N Cholesky factor and refined: positive terms, stationary in m, also where the features have a low rank.

    :param features: (..., N, D), real or complex, float64 or complex128; with D >= N, since this costs N^2 D.
    :param noise: the diagonal of S, (..., N).
    :param values: y, (..., N, K).
    :returns: (..., K) and (...); differentiable.
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
    quadratic = (precision * _squared_modulus(residual)).sum(-2) + _squared_modulus(mean).sum(-2)
    return quadratic, log_determinant(factor)


def _squared_modulus(x: Tensor) -> Tensor:
    """The squared modulus."""
    return x.real.square() + x.imag.square() if x.is_complex() else x.square()


class _LogDeterminantAndQuadratic(torch.autograd.Function):
    """Both terms of a Gaussian evidence from one Cholesky factor, whose gradients need the inverse and no more."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, cross: Tensor) -> tuple[Tensor, Tensor]:
        factor = cholesky(matrix)
        dtype = torch.promote_types(matrix.dtype, cross.dtype)
        mean = torch.cholesky_solve(cross.to(dtype), factor.to(dtype))
        ctx.save_for_backward(factor, mean)
        ctx.cross_dtype = cross.dtype
        return log_determinant(factor), _real((cross.conj() * mean).sum())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_log: Tensor, grad_quadratic: Tensor) -> tuple[Tensor, Tensor]:
        factor, mean = ctx.saved_tensors
        grad_matrix = torch.cholesky_inverse(factor).mul_(grad_log)
        explained = grad_quadratic * (mean @ mean.mH)
        grad_matrix -= explained if factor.is_complex() else _real(explained)
        grad_cross = 2.0 * grad_quadratic * mean
        return grad_matrix, grad_cross if ctx.cross_dtype.is_complex else _real(grad_cross)


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
    if _numbers(cross, "cross").shape != (len(_square(matrix)), 1):
        raise ValueError(
            f"expected cross of shape ({len(matrix)}, 1), a row per row of matrix, got {tuple(cross.shape)}; reshape it"
        )
    return _LogDeterminantAndQuadratic.apply(matrix, cross)
