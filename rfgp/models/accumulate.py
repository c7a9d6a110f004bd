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
    with torch.no_grad():
        width = kernel.scalar_features(x[:1]).shape[-1]
    itemsize = x.element_size() * (2 if kernel.is_complex else 1)
    own = [slice(None) if rows.groups is None else rows.groups == group for group in range(observations.num_groups)]
    if torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in kernel.feature_parameters())):
        empty = _empty(kernel, observations, width, rows, 1)
        parts = [_tracked(kernel, x[mine], rows.take(mine), product_dtype, itemsize, empty) for mine in own]
        fresh = GramStatistics.concatenate(parts)
        return fresh if sums is None else sums.merge(fresh)
    if sums is None:
        sums = _empty(kernel, observations, width, rows, observations.num_groups)
    for mine in own:
        own_x, own_rows = x[mine], rows.take(mine)
        for part in row_chunks(len(own_x), width, itemsize):
            sums.update(kernel.scalar_features(own_x[part]), *own_rows.take(part), product_dtype=product_dtype)
    return sums


def _tracked(
    kernel: FeatureStructure, x: Tensor, rows: Rows, product_dtype: torch.dtype, itemsize: int, empty: GramStatistics
) -> GramStatistics:
    """Statistics of one group of rows with gradients, each chunk checkpointed; ``empty`` where there are no rows."""

    def chunk_sums(x: Tensor, rows: Rows) -> dict[str, Tensor]:
        features = kernel.scalar_features(x)
        return GramStatistics.of_rows(features, rows.targets, rows.weights, rows.log_noise, product_dtype).sums()

    total = None
    for part in row_chunks(len(x), empty.cross.shape[-2], itemsize):
        sums = checkpoint(chunk_sums, x[part], rows.take(part), use_reentrant=False)
        added = GramStatistics.from_sums(sums)
        total = added if total is None else total.merge(added)
    return empty if total is None else total


def _empty(kernel: FeatureStructure, observations: Observations, width: int, rows: Rows, groups: int) -> GramStatistics:
    needed = 2.0 * observations.num_groups * width**2 * (16 if kernel.is_complex else 8)
    what = f"statistics and factors of {observations.num_groups} x {width} x {width} numbers"
    _checks.fits_in_memory(needed, what, "use fewer features")
    targets = rows.targets
    return GramStatistics(width, targets.shape[-1], groups, kernel.is_complex, targets.is_complex(), targets.device)
