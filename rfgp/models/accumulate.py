"""From rows to sufficient statistics: features in chunks, at constant memory, with gradients where they are wanted."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .. import _checks
from ..kernels import FeatureStructure
from ..linalg import row_chunks
from ..statistics import GramStatistics
from .observations import Observations, Rows


def accumulate(
    kernel: FeatureStructure,
    observations: Observations,
    x: Tensor,
    rows: Rows,
    product_dtype: torch.dtype,
    sums: GramStatistics | None = None,
) -> GramStatistics:
    """Add rows to statistics, chunk by chunk.

    Where the features need gradients every chunk is checkpointed: its features are computed again on the way back, so
    that memory does not grow with the number of rows.

    :param kernel: the kernel whose scalar features are summed.
    :param observations: what the likelihood makes of rows.
    :param x: inputs, (N, d).
    :param rows: what the rows add beside their features.
    :param product_dtype: the dtype of the products inside a chunk.
    :param sums: statistics to add to, in place where there are no gradients; new ones where it is None.
    :returns: the statistics.
    :raises ValueError: where statistics and factors would not fit in memory.
    """
    if rows.groups is not None:
        order = rows.groups.argsort(stable=True)
        x, rows = x[order], rows.take(order)
    with torch.no_grad():
        width = kernel.scalar_features(x[:1]).shape[-1]
    if sums is None:
        sums = _empty(kernel, observations, width, rows)
    tracks = torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in kernel.feature_parameters()))

    def chunk_sums(x: Tensor, rows: Rows) -> dict[str, Tensor]:
        fresh = _empty(kernel, observations, width, rows)
        return fresh.update(kernel.scalar_features(x), *rows, product_dtype=product_dtype).sums()

    for part in row_chunks(len(x), width, x.element_size() * (2 if kernel.is_complex else 1)):
        if tracks:
            added = checkpoint(chunk_sums, x[part], rows.take(part), use_reentrant=False)
            sums = sums.merge(GramStatistics.from_sums(added))
        else:
            sums.update(kernel.scalar_features(x[part]), *rows.take(part), product_dtype=product_dtype)
    return sums


def _empty(kernel: FeatureStructure, observations: Observations, width: int, rows: Rows) -> GramStatistics:
    groups = observations.num_groups
    needed = 2.0 * groups * width**2 * (16 if kernel.is_complex else 8)
    what = f"statistics and factors of {groups} x {width} x {width} numbers"
    _checks.fits_in_memory(needed, what, "use fewer features")
    targets = rows.targets
    return GramStatistics(width, targets.shape[-1], groups, kernel.is_complex, targets.is_complex(), targets.device)
