"""Powers of two between which the inputs of some rows lie: how large they are, without the value of any row."""

from __future__ import annotations

import torch
from torch import Tensor


def input_bounds(x: Tensor) -> Tensor:
    """The bounds (2, d) of inputs x (N, d), in float64 and on the CPU: zero, and powers of two with their signs."""
    known = x.detach()
    low, high = torch.stack([known.amin(0), known.amax(0)]).double().cpu()
    return torch.stack([-_power_above(-low), _power_above(high)])


def joined_bounds(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """The bounds over the rows of both; None where those of one are not known."""
    if first is None or second is None or first.shape != second.shape:
        return None
    return torch.stack([torch.minimum(first[0], second[0]), torch.maximum(first[1], second[1])])


def _power_above(values: Tensor) -> Tensor:
    """The smallest power of two, with its sign, or zero, that is not below each value."""
    power = values.sign() * torch.exp2(torch.frexp(values).exponent.double() - 1.0)
    return torch.where(power < values, 2.0 * power, power)
