"""Weighted Gram matrices and cross products of tall matrices, summed in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .._support import checks
from .chunks import row_chunks
from .complex_numbers import accurate_dtype, check_numbers, real_part

_GRAM_COLUMNS = 512


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

    The other arguments are those of :func:`gram`.

    >>> total, cross = torch.zeros(2, 2, dtype=torch.float64), torch.zeros(2, 1, dtype=torch.float64)
    >>> features = torch.randn(10, 2, dtype=torch.float64)
    >>> add_gram_(total, cross, features, torch.ones(10, 1))
    >>> torch.allclose(mirror_(total), features.mT @ features)
    True
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
    """Copy the upper triangle of (D, D) Hermitian matrix onto the lower one, in place and block by block.

    >>> mirror_(torch.tensor([[1.0, 2.0], [0.0, 3.0]]))
    tensor([[1., 2.],
            [2., 3.]])
    """
    width = gram.shape[-1]
    for start in range(0, width, _GRAM_COLUMNS):
        stop = min(start + _GRAM_COLUMNS, width)
        gram[stop:, start:stop] = gram[start:stop, stop:].mH
        diagonal = gram[start:stop, start:stop]
        diagonal.copy_(torch.triu(diagonal) + torch.triu(diagonal, 1).mH)
    return gram


class GramGradients:
    r"""Gradients in the rows of tall matrices, from those of their weighted products.

    .. math:: G = \Phi^H W \Phi, \quad H = \Phi^H W Y, \quad T = Y^H W Y

    :param gram: the gradient of G, (D, D).
    :param cross: that of H, (D, K).
    :param target_gram: that of T, (K, K); default: zero.
    :param product_dtype: the dtype of the products with rows, float32 or float64.

    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> GramGradients(one, 0.0 * one).of_rows(3.0 * one, one, None)[0]
    tensor([[6.]], dtype=torch.float64)
    """

    def __init__(
        self, gram: Tensor, cross: Tensor, target_gram: Tensor | None = None, product_dtype: torch.dtype = torch.float64
    ) -> None:
        def rounded(matrix: Tensor) -> Tensor:
            return matrix.to(product_dtype.to_complex() if matrix.is_complex() else product_dtype)

        self.gram, self.cross = rounded(gram + gram.mH), rounded(cross)
        self.target_gram = None if target_gram is None else rounded(target_gram + target_gram.mH)

    def of_rows(
        self, features: Tensor, targets: Tensor, weights: Tensor | None, wanted: Sequence[bool] = (True, True, True)
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The wanted gradients in features (n, D), targets (n, K) and weights (n,), without a Gram product."""
        rows, mixed = features.to(self.gram.dtype), self.cross.dtype
        columns = targets.to(mixed if targets.is_complex() else mixed.to_real())
        from_rows = from_columns = None
        if wanted[0] or wanted[2]:
            back = columns.to(mixed) @ self.cross.mH
            from_rows = (back if rows.is_complex() else real_part(back)).addmm_(rows, self.gram)
        if wanted[1] or wanted[2]:
            ahead = rows.to(mixed) @ self.cross
            from_columns = ahead if columns.is_complex() else real_part(ahead)
            if self.target_gram is not None:
                from_columns = from_columns + columns @ self.target_gram
        gradients = None
        if wanted[2] and weights is not None and from_rows is not None and from_columns is not None:
            twice = real_part(rows.conj() * from_rows).sum(-1) + real_part(columns.conj() * from_columns).sum(-1)
            gradients = (0.5 * twice).to(weights.dtype)
        return (
            _weighted(from_rows, weights, features.dtype) if wanted[0] else None,
            _weighted(from_columns, weights, targets.dtype) if wanted[1] else None,
            gradients,
        )


def _weighted(rows: Tensor | None, weights: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if rows is None or weights is None:
        return None if rows is None else rows.to(dtype)
    return (rows * weights.to(rows.dtype.to_real()).unsqueeze(-1)).to(dtype)


class _Gram(torch.autograd.Function):
    """Weighted Gram and cross products of tall matrices, row chunk by row chunk; nothing of size N x D is kept."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, targets: Tensor, weights: Tensor | None, product_dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(features, targets, weights)
        ctx.product_dtype = product_dtype
        exact = torch.promote_types(accurate_dtype(features.dtype), accurate_dtype(targets.dtype))
        width = features.shape[-1]
        gram = features.new_zeros(width, width, dtype=accurate_dtype(features.dtype))
        cross = features.new_zeros(width, targets.shape[-1], dtype=exact)
        add_gram_(gram, cross, features, targets, weights, product_dtype)
        return mirror_(gram), cross

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_gram: Tensor, grad_cross: Tensor) -> tuple[Tensor | None, ...]:
        tensors, wanted = ctx.saved_tensors, ctx.needs_input_grad[:3]
        features, targets, weights = tensors
        gradients = GramGradients(grad_gram, grad_cross, product_dtype=ctx.product_dtype)
        found = [
            torch.empty_like(tensor) if is_wanted else None for tensor, is_wanted in zip(tensors, wanted, strict=True)
        ]
        for rows in row_chunks(len(features), features.shape[1], gradients.gram.dtype.itemsize):
            chunk = features[rows], targets[rows], None if weights is None else weights[rows]
            for whole, part in zip(found, gradients.of_rows(*chunk, wanted), strict=True):
                if whole is not None and part is not None:
                    whole[rows] = part
        return (*found, None)


def gram(
    features: Tensor, targets: Tensor, weights: Tensor | None = None, product_dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    r"""Gram matrix :math:`\Phi^H W \Phi`, (D, D), and cross products :math:`\Phi^H W Y`, (D, K), in double precision.

    Rows are taken in chunks, to save memory. Differentiable once in all three tensors.

    :param features: (N, D), real or complex.
    :param targets: (N, K), real or complex.
    :param weights: (N,), real; default: ones.
    :param product_dtype: the dtype of the products inside a chunk of rows, float32 or float64.
    :raises ValueError: for other tensors.

    >>> gram(torch.tensor([[1.0, 2.0], [0.0, 1.0]]), torch.tensor([[1.0], [1.0]]))[0]
    tensor([[1., 2.],
            [2., 5.]], dtype=torch.float64)
    """
    for name, value in (("features", features), ("targets", targets)):
        if check_numbers(value, name).dim() != 2 or len(value) != len(features):
            raise ValueError(
                f"expected features (N, D) and targets (N, K), got {name} of shape {tuple(value.shape)}; "
                "pass a row of each per row of the data"
            )
    if weights is not None:
        checks.one_per_row(checks.floating(weights, "weights"), features, "weights")
    return _Gram.apply(features, targets, weights, checks.floating_dtype("product_dtype", product_dtype))
