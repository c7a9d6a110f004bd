"""From rows to sufficient statistics: features in chunks, at constant memory, with gradients where they are wanted."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .. import _checks
from ..kernels import RandomFeatureKernel
from ..linalg import row_chunks
from ..statistics import GramStatistics
from .observations import Observations, Rows


def accumulate(
    kernel: RandomFeatureKernel,
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
    own = [slice(None) if rows.groups is None else rows.groups == group for group in range(rows.num_groups)]
    own = own[:1] if rows.is_in_all_groups else own
    if torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in kernel.feature_parameters())):
        empty = _empty(kernel, width, rows, rows.num_groups if rows.is_in_all_groups else 1, sums)
        parts = [_tracked(kernel, x[mine], rows.take(mine), product_dtype, itemsize, empty) for mine in own]
        return merged(observations, sums, GramStatistics.concatenate(parts))
    if sums is None or len(sums.count) != rows.num_groups:
        empty = _empty(kernel, width, rows, rows.num_groups, sums)
        fresh = accumulate(kernel, observations, x, rows, product_dtype, empty)
        return merged(observations, sums, fresh)
    for mine in own:
        own_x, own_rows = x[mine], rows.take(mine)
        for part in row_chunks(len(own_x), width, itemsize):
            _add(sums, kernel.scalar_features(own_x[part]), own_rows.take(part), product_dtype)
    return sums


def merged(observations: Observations, known: GramStatistics | None, fresh: GramStatistics) -> GramStatistics:
    """The statistics of old and new rows together.

    :param observations: what the likelihood makes of rows.
    :param known: statistics of the old rows, if there are any.
    :param fresh: statistics of the new ones.
    """
    if known is None:
        return fresh
    first, second = observations.aligned(known, fresh)
    return first.merge(second)


def _add(sums: GramStatistics, features: Tensor, rows: Rows, product_dtype: torch.dtype) -> None:
    if not rows.is_in_all_groups:
        sums.add_checked(features, *rows[:4], product_dtype=product_dtype)
        return
    for group in range(rows.num_groups):
        mine, own = rows.of_group(group)
        numbers = torch.full((len(own.targets),), group, device=features.device)
        if len(numbers):
            sums.add_checked(features[mine], own.targets, own.weights, own.log_noise, numbers, product_dtype)


def _tracked(
    kernel: RandomFeatureKernel, x: Tensor, rows: Rows, product_dtype: torch.dtype, itemsize: int, empty: GramStatistics
) -> GramStatistics:
    """Statistics of one group of rows with gradients, each chunk checkpointed; ``empty`` where there are no rows."""

    def of_rows(features: Tensor, rows: Rows) -> GramStatistics:
        return GramStatistics.of_rows(features, rows.targets, rows.weights, rows.log_noise, product_dtype, empty.shift)

    def chunk_sums(x: Tensor, rows: Rows) -> dict[str, Tensor]:
        features = kernel.scalar_features(x)
        if not rows.is_in_all_groups:
            return of_rows(features, rows).sums()
        groups = [rows.of_group(group) for group in range(rows.num_groups)]
        return GramStatistics.concatenate([of_rows(features[mine], own) for mine, own in groups]).sums()

    total = None
    for part in row_chunks(len(x), empty.num_features, itemsize):
        sums = checkpoint(chunk_sums, x[part], rows.take(part), use_reentrant=False, preserve_rng_state=False)
        added = GramStatistics.from_sums(sums, empty.shift)
        total = added if total is None else total.merge(added)
    return empty if total is None else total


def _empty(
    kernel: RandomFeatureKernel, width: int, rows: Rows, groups: int, known: GramStatistics | None
) -> GramStatistics:
    """Statistics without rows, with the shift of those known, if there are any."""
    needed = 2.0 * rows.num_groups * width**2 * (16 if kernel.is_complex else 8)
    what = f"statistics and factors of {rows.num_groups} x {width} x {width} numbers"
    _checks.fits_in_memory(needed, what, "use fewer features")
    shift = rows.center if known is None else known.shift
    return GramStatistics(
        width, len(shift), groups, kernel.is_complex, shift.is_complex(), rows.targets.device, shift.detach()
    )
