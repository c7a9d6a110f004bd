"""Units in which distances between inputs say what is near for a kernel."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .leaves import leaves


def input_units(kernel: Kernel, x: Tensor) -> Tensor:
    """The unit (d,) of every column of the inputs: the shortest lengthscale of the kernels that see it, in float64.

    Columns without any lengthscale are measured in standard deviations.

    :param kernel: an exact kernel.
    :param x: its full inputs, (N, d).
    """
    spread = x.detach().double().std(0, correction=0)
    shortest = torch.full_like(spread, float("inf"))
    for leaf, columns in leaves(kernel, torch.arange(x.shape[-1], device=x.device).unsqueeze(0)):
        if leaf.has_lengthscale and not hasattr(leaf, "period_length"):
            lengths = leaf.lengthscale.detach().flatten(0, -2).amin(0).to(spread)
            shortest[columns[0]] = torch.minimum(shortest[columns[0]], lengths.expand(columns.shape[-1]))
    return torch.where(shortest.isfinite(), shortest, torch.where(spread > 0, spread, torch.ones_like(spread)))
