"""From rows to sufficient statistics: features in chunks, at constant memory, with gradients where they are wanted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from .. import _checks
from ..linalg import row_chunks
from .noise import NoiseModel
from .rows import Rows
from .statistics import GramStatistics
from .summation import Part, summed
from .training_residual import TrainingResidual


class ScalarFeatures(Protocol):
    """The protocol of kernels with scalar features, such as those made by :func:`rfgp.approximate`."""

    @property
    def is_complex(self) -> bool:
        """Whether the features are complex."""

    @property
    def num_scalar_features(self) -> int:
        """The number D of features; a ValueError where a map waits for its first inputs."""

    def scalar_features(self, x: Tensor) -> Tensor:
        """The features (..., N, D) of inputs (..., N, d)."""

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters that the features depend on."""

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """All parameters."""

    def shared(self) -> Any:
        """A context with ``tensors`` that the features of all rows have in common, computed once for all chunks."""


def accumulate(
    kernel: ScalarFeatures,
    noise: NoiseModel,
    x: Tensor,
    rows: Rows,
    product_dtype: torch.dtype,
    known: GramStatistics | None = None,
    residual: TrainingResidual | None = None,
) -> GramStatistics:
    """Sum the statistics of rows in chunks, and add them to known ones.

    Gradients run through all of it, at the memory of one chunk: see :func:`summed`.

    :param kernel: the kernel whose scalar features are summed.
    :param noise: the noise model, which knows how statistics are merged.
    :param x: inputs, (N, d).
    :param rows: what the rows add beside their features.
    :param product_dtype: the dtype of the products inside a chunk.
    :param known: statistics to add to, in place where there are no gradients; default: none.
    :param residual: what the rows gain by the variance that their features lack; default: nothing.
    :raises ValueError: where statistics and factors would not fit in memory.
    """
    width = _width(kernel, x) if known is None else known.num_features
    shared = kernel.shared()
    parameters = [*(kernel.feature_parameters() if residual is None else kernel.parameters()), *shared.tensors]
    tracks = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (x, *rows[:3], *parameters)
    )
    is_open = known is not None and not tracks and len(known.count) == rows.num_groups
    total = known if is_open and known is not None else _empty(kernel, width, rows, known)
    parts = _parts(rows, width, x.element_size() * (2 if kernel.is_complex else 1))

    def make(x: Tensor, rows: Rows) -> tuple[Tensor, Rows]:
        with shared:
            return kernel.scalar_features(x), rows if residual is None else residual.added(kernel, x, rows)

    total = summed(make, x, rows, parts, parameters, total, product_dtype)
    return total if is_open else noise.merged(known, total)


def _width(kernel: ScalarFeatures, x: Tensor) -> int:
    """The number of features, whose maps are made where they wait for their first inputs."""
    try:
        return kernel.num_scalar_features
    except ValueError:
        with torch.no_grad():
            return kernel.scalar_features(x[:1]).shape[-1]


def _parts(rows: Rows, width: int, itemsize: int) -> list[Part]:
    """Chunks of rows, each of one group where a row is in one group."""
    if rows.groups is None:
        return [*row_chunks(len(rows.targets), width, itemsize)]
    blocks = [(rows.groups == group).nonzero().squeeze(-1) for group in range(rows.num_groups)]
    return [members[part] for members in blocks for part in row_chunks(len(members), width, itemsize)]


def _empty(kernel: ScalarFeatures, width: int, rows: Rows, known: GramStatistics | None) -> GramStatistics:
    """Statistics without rows, with the shift of those known, if there are any."""
    needed = 2.0 * rows.num_groups * width**2 * (16 if kernel.is_complex else 8)
    what = f"statistics and factors of {rows.num_groups} x {width} x {width} numbers"
    _checks.fits_in_memory(needed, what, "use fewer features")
    shift = rows.center if known is None else known.shift
    is_complex, device = (kernel.is_complex, shift.is_complex()), rows.targets.device
    return GramStatistics(width, len(shift), rows.num_groups, *is_complex, device, shift.detach())
