"""Feature-major evaluation in blocks of rows that stay in the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .._torch import has_values


def blocked(
    columns: Callable[..., Tensor], inputs: Sequence[Tensor], num_features: int, is_complex: bool, block_bytes: int
) -> Tensor:
    """Evaluate a feature-major function on inputs (N, d), in blocks of rows that stay in the cache.

    :param columns: takes one (d, n) tensor per input, and working memory, and returns (D, n) features, real or complex.
    :returns: (N, D), or (N, 2 D) with real and imaginary parts side by side.

    With gradients the rows are taken at once, since autograd keeps the intermediate results anyway.
    """
    if not has_values() or (torch.is_grad_enabled() and any(x.requires_grad for x in inputs)):
        result = columns(*[x.mT for x in inputs])
        return torch.cat([result.real, result.imag]).mT if is_complex else result.mT
    num_rows = inputs[0].shape[0]
    rows = inputs[0].new_empty(num_rows, num_features * (2 if is_complex else 1))
    block_rows = min(max(block_bytes // (rows.shape[1] * rows.element_size()), 32), block_bytes // 8192)
    dtype = rows.dtype.to_complex() if is_complex else rows.dtype
    memory = torch.empty(2, num_features, min(block_rows, num_rows), dtype=dtype, device=rows.device)
    for start in range(0, num_rows, block_rows):
        stop = min(start + block_rows, num_rows)
        work = memory if stop - start == memory.shape[-1] else torch.empty_like(memory[..., : stop - start])
        block = columns(*[x[start:stop].mT.contiguous() for x in inputs], work=(work[0], work[1]))
        if is_complex:
            rows[start:stop, :num_features] = block.real.mT
            rows[start:stop, num_features:] = block.imag.mT
        else:
            rows[start:stop] = block.mT
    return rows
