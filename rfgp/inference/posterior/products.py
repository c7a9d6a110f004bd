"""Products of tall feature matrices in float64, row chunk by row chunk."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ...linalg import accurate_dtype, gram, joined, row_chunks


def batched_gram(
    features: Tensor, targets: Tensor, weights: Tensor | None = None, product_dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """The (..., D, D) Gram matrices and (..., D, K) cross products of rows, with batch dimensions that broadcast.

    :param features: (..., N, D).
    :param targets: (..., N, K); a batch of targets alone shares one Gram matrix, without batch dimensions.
    :param weights: (..., N); default: ones.
    """
    weights_batch = torch.Size() if weights is None else weights.shape[:-1]
    shared = torch.broadcast_shapes(features.shape[:-2], weights_batch)
    if not shared:
        batch, (num_rows, columns) = targets.shape[:-2], targets.shape[-2:]
        flat = targets.reshape(-1, num_rows, columns).permute(1, 0, 2).reshape(num_rows, -1)
        product, cross = gram(features.reshape(features.shape[-2:]), flat, weights, product_dtype)
        return product, cross.reshape(len(cross), *batch, columns).movedim(0, -2)
    batch = torch.broadcast_shapes(shared, targets.shape[:-2])
    all_features = features.expand(*batch, *features.shape[-2:]).reshape(-1, *features.shape[-2:])
    all_targets = targets.expand(*batch, *targets.shape[-2:]).reshape(-1, *targets.shape[-2:])
    all_weights = (
        [None] * len(all_features)
        if weights is None
        else weights.expand(*batch, weights.shape[-1]).reshape(-1, weights.shape[-1])
    )
    pairs = [gram(f, t, w, product_dtype) for f, t, w in zip(all_features, all_targets, all_weights, strict=True)]
    grams, crosses = (torch.stack(parts) for parts in zip(*pairs, strict=True))
    return grams.reshape(*batch, *grams.shape[1:]), crosses.reshape(*batch, *crosses.shape[1:])


def feature_product(features: Tensor, weights: Tensor) -> Tensor:
    """The product (..., N, K) of features (..., N, D) with weights (..., D, K), in float64."""
    if features.dim() == 2 and weights.dim() > 2:
        batch, columns = weights.shape[:-2], weights.shape[-1]
        flat = feature_product(features, weights.movedim(-2, 0).flatten(1))
        return flat.unflatten(-1, (*batch, columns)).movedim(0, -2)
    dtype = torch.promote_types(accurate_dtype(features.dtype), weights.dtype)
    exact = weights.to(dtype)
    chunks = row_chunks(features.shape[-2], features.shape[-1], dtype.itemsize)
    return joined((features[..., rows, :].to(dtype) @ exact for rows in chunks), features.shape[-2])


def transposed_product(features: Tensor, values: Tensor) -> Tensor:
    """The product (..., D, K) of the adjoint of features (..., N, D) with values (..., N, K), in float64."""
    if features.dim() == 2 and values.dim() > 2:
        batch, columns = values.shape[:-2], values.shape[-1]
        flat = transposed_product(features, values.movedim(-2, 0).flatten(1))
        return flat.unflatten(-1, (*batch, columns)).movedim(0, -2)
    dtype = torch.promote_types(accurate_dtype(features.dtype), values.dtype)
    chunks = row_chunks(features.shape[-2], features.shape[-1], dtype.itemsize)
    parts = [features[..., rows, :].mH.to(dtype) @ values[..., rows, :].to(dtype) for rows in chunks]
    return functools.reduce(torch.add, parts)
