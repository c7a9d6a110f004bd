"""Values of constrained parameters of GPyTorch's modules."""

from __future__ import annotations

import gpytorch
import torch
from gpytorch.constraints import Interval
from torch import Tensor


def constrained(name: str) -> property:
    """The value of the parameter ``raw_{name}`` of a GPyTorch module under its constraint, to be read and set."""

    def value(module: gpytorch.Module) -> Tensor:
        return getattr(module, f"raw_{name}_constraint").transform(getattr(module, f"raw_{name}"))

    def set_value(module: gpytorch.Module, new: Tensor) -> None:
        module.initialize(**{f"raw_{name}": getattr(module, f"raw_{name}_constraint").inverse_transform(new)})

    return property(value, set_value)


def set_within(module: gpytorch.Module, name: str, value: Tensor) -> None:
    """Set a parameter to a value, moved inside the bounds of its constraint."""
    raw = getattr(module, f"raw_{name}")
    constraint: Interval = getattr(module, f"raw_{name}_constraint")
    lower, upper = constraint.lower_bound.double(), constraint.upper_bound.double()
    exact = torch.as_tensor(value, dtype=torch.float64, device=raw.device).expand(raw.shape)
    smallest = torch.where(lower > 0, 1.01 * lower, lower)
    inside = torch.minimum(torch.maximum(exact, smallest), torch.where(upper > 0, 0.99 * upper, upper))
    module.initialize(**{name: inside.to(raw.dtype)})
