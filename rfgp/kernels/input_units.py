"""Units in which distances between inputs say what is near for a kernel."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .leaves import leaves


def input_units(kernel: Kernel, x: Tensor) -> Tensor:
    """The unit (d,) of every column of the inputs: the shortest lengthscale of the kernels that see it, in float64.

    Columns that only kernels without lengthscales see are measured in standard deviations. Those that no kernel sees
    have an infinite unit, and do not count.

    :param kernel: an exact kernel.
    :param x: its full inputs, (N, d).
    """
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
