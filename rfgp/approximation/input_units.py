"""Units in which distances between inputs say what is near for a kernel."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel
from torch import Tensor

from ..kernels.observation import ObservesRows
from .feature_kernel import FeatureKernel


def input_units(kernel: Kernel, x: Tensor) -> Tensor:
    """The shortest lengthscale, else the standard deviation, of every column (d,); infinite for unseen ones."""
    spread = x.detach().double().std(0, correction=0)
    units = torch.full_like(spread, float("inf"))
    is_seen = torch.zeros_like(spread, dtype=torch.bool)
    for leaf, (columns,) in leaves(kernel, torch.arange(x.shape[-1], device=x.device).unsqueeze(0)):
        is_seen[columns] = True
        lengths = leaf.lengthscale.detach().flatten(0, -2).amin(0).to(units) if _has_lengths(leaf) else units[:0]
        if len(lengths) in (1, len(columns)):
            units[columns] = torch.minimum(units[columns], lengths.expand(len(columns)))
    is_open = is_seen & units.isinf() & (spread > 0)
    return torch.where(is_open, spread, units)


def _has_lengths(kernel: Kernel) -> bool:
    """Whether a kernel has lengthscales in units of its inputs, other than those of a periodic one."""
    return kernel.has_lengthscale and not hasattr(kernel, "period_length")


def leaves(kernel: Kernel, x: Tensor) -> Iterator[tuple[Kernel, Tensor]]:
    """The parts that have no parts, or features of their own, with the columns of x (..., N, d) that they see."""
    if kernel.active_dims is not None:
        x = x.index_select(-1, kernel.active_dims)
    yield from _inner_leaves(kernel, x)


def _inner_leaves(kernel: Kernel, x: Tensor) -> Iterator[tuple[Kernel, Tensor]]:
    x = kernel.coordinates(x) if isinstance(kernel, ObservesRows) else x
    parts = [part for part in kernel.modules() if isinstance(part, Kernel) and part is not kernel]
    parts = [] if isinstance(kernel, FeatureKernel) else parts
    direct = [part for part in parts if not any(part in other.modules() for other in parts if other is not part)]
    if not direct:
        yield kernel, x
    for part in direct:
        is_composed = isinstance(kernel, AdditiveKernel | ProductKernel | ObservesRows)
        yield from leaves(part, x) if is_composed else _inner_leaves(part, x)
