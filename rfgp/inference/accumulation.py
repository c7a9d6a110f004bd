"""From rows to sufficient statistics: features in chunks, at constant memory, with gradients where they are wanted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .. import _checks
from ..linalg import row_chunks
from .noise import NoiseModel
from .rows import Rows
from .statistics import GramStatistics


class ScalarFeatures(Protocol):
    """The protocol of kernels with scalar features, such as those made by :func:`rfgp.approximate`."""

    @property
    def is_complex(self) -> bool:
        """Whether the features are complex."""

    def scalar_features(self, x: Tensor) -> Tensor:
        """The features (..., N, D) of inputs (..., N, d)."""

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters that the features depend on."""


def accumulate(
    kernel: ScalarFeatures,
    noise: NoiseModel,
    x: Tensor,
    rows: Rows,
    product_dtype: torch.dtype,
    known: GramStatistics | None = None,
) -> GramStatistics:
    """Sum the statistics of rows in chunks, and add them to known ones.

    Where the features need gradients every chunk is checkpointed: its features are computed again on the way back, so
    that memory does not grow with the number of rows.

    :param kernel: the kernel whose scalar features are summed.
    :param noise: the noise model, which knows how statistics are merged.
    :param x: inputs, (N, d).
    :param rows: what the rows add beside their features.
    :param product_dtype: the dtype of the products inside a chunk.
    :param known: statistics to add to, in place where there are no gradients; default: none.
    :raises ValueError: where statistics and factors would not fit in memory.
    """
    with torch.no_grad():
        width = kernel.scalar_features(x[:1]).shape[-1]
    tracks = torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in kernel.feature_parameters()))
    is_open = known is not None and not tracks and len(known.count) == rows.num_groups
    groups = 1 if tracks else rows.num_groups
    total = known if is_open and known is not None else _empty(kernel, width, rows, groups, known)
    itemsize = x.element_size() * (2 if kernel.is_complex else 1)
    blocks = []
    for members in rows.blocks():
        block_x, block = x[members], rows.take(members)
        chunks = [(block_x[part], block.take(part)) for part in row_chunks(len(block_x), width, itemsize)]
        if tracks:
            blocks.append(_tracked(kernel, chunks, product_dtype, total))
            continue
        for chunk_x, chunk in chunks:
            total.add(kernel.scalar_features(chunk_x), chunk, product_dtype)
    if tracks:
        total = GramStatistics.concatenate(blocks)
    return total if is_open else noise.merged(known, total)


def _tracked(
    kernel: ScalarFeatures, chunks: list[tuple[Tensor, Rows]], product_dtype: torch.dtype, empty: GramStatistics
) -> GramStatistics:
    """Statistics of a block of rows with gradients, each chunk checkpointed."""

    def sums_of_chunk(x: Tensor, rows: Rows) -> dict[str, Tensor]:
        return GramStatistics.of_rows(kernel.scalar_features(x), rows, product_dtype, empty.shift).sums()

    total = None
    for x, rows in chunks:
        one_group = rows if rows.groups is None else rows._replace(groups=None, num_groups=1)
        sums = checkpoint(sums_of_chunk, x, one_group, use_reentrant=False, preserve_rng_state=False)
        added = GramStatistics.from_sums(sums, empty.shift)
        total = added if total is None else total.merge(added)
    return empty if total is None else total


def _empty(kernel: ScalarFeatures, width: int, rows: Rows, groups: int, known: GramStatistics | None) -> GramStatistics:
    """Statistics without rows, with the shift of those known, if there are any."""
    needed = 2.0 * rows.num_groups * width**2 * (16 if kernel.is_complex else 8)
    what = f"statistics and factors of {rows.num_groups} x {width} x {width} numbers"
    _checks.fits_in_memory(needed, what, "use fewer features")
    shift = rows.center if known is None else known.shift
    is_complex, device = (kernel.is_complex, shift.is_complex()), rows.targets.device
    return GramStatistics(width, len(shift), groups, *is_complex, device, shift.detach())
