"""Weighted Gram matrices and cross products of tall matrices, summed in float64."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .. import _checks
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
    :param features: (N, D), real or complex.
    :param targets: (N, K), real or complex.
    :param weights: (N,), real; default: ones.
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
                grad_features[rows] = (grad if features.is_complex() else real_part(grad)).to(features.dtype)
            if want_targets:
                grad = scale * (chunk.to(grad_cross.dtype) @ grad_cross)
                grad_targets[rows] = (grad if targets.is_complex() else real_part(grad)).to(targets.dtype)
            if want_weights:
                grad = real_part(chunk.conj() * (0.5 * from_gram + from_cross)).sum(-1)
                grad_weights[rows] = grad.to(weights.dtype)
        return (
            grad_features if want_features else None,
            grad_targets if want_targets else None,
            grad_weights if want_weights else None,
            None,
        )


def gram(
    features: Tensor, targets: Tensor, weights: Tensor | None = None, product_dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    r"""Gram matrix :math:`\Phi^H W \Phi` and cross products :math:`\Phi^H W Y` with real weights W = diag(w).

    Only the upper block triangle of the Gram matrix is computed, and the rows are taken in chunks, so that nothing of
    the size of ``features`` is allocated, forwards or backwards. Sums are in float64 (complex128 for complex input).

    :param features: (N, D), real or complex.
    :param targets: (N, K), real or complex.
    :param weights: (N,), real; default: ones.
    :param product_dtype: the dtype of the products inside a chunk of rows; their sum is in float64 all the same.
    :returns: the (D, D) Gram matrix and the (D, K) cross products; differentiable once in all three tensors.
    :raises ValueError: for other tensors.

    >>> g, h = gram(torch.tensor([[1.0, 2.0], [0.0, 1.0]]), torch.tensor([[1.0], [1.0]]))
    >>> g
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
        _checks.one_per_row(_checks.floating(weights, "weights"), features, "weights")
    return _Gram.apply(features, targets, weights, _checks.floating_dtype("product_dtype", product_dtype))
