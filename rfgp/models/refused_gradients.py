"""Gradients that are refused, where sums do not know how they depend on parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


def refusing(value: Tensor, parameters: Iterable[Tensor]) -> Tensor:
    """A value whose gradient in parameters that it depends on without a graph raises a ValueError; others stay."""
    learned = [parameter for parameter in parameters if parameter.requires_grad]
    if not learned or not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return value
    zero: Tensor = _Refused.apply(value.detach(), *learned)
    return value + zero


class _Refused(torch.autograd.Function):
    """Zero, whose gradient is refused."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, *parameters: Tensor) -> Tensor:
        return torch.zeros_like(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        raise ValueError(
            "expected sums of a fit for the gradient of the evidence in the parameters of the features, got sums "
            "without gradients: those of a fit under torch.no_grad(), or changed by update, downdate, forget or merge; "
            "call condition with all rows, or torch.autograd.grad for the other parameters alone"
        )
