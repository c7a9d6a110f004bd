"""Gradients of sums that were computed without a graph: the rows are gone through once more on the way back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Backward = Callable[[Sequence[Tensor], list[Tensor | None], list[Tensor]], Sequence[Tensor | None]]
"""Takes the gradients of the sums, their arguments without a graph, and the inputs whose gradients it returns."""


class _Sum(torch.autograd.Function):
    """Sums whose gradients are found by a function."""

    @staticmethod
    def forward(
        ctx: Any, sums: tuple[Tensor, ...], backward: Backward, count: int, *tensors: Tensor | None
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(*tensors)
        ctx.gradients, ctx.count = backward, count
        return tuple([value.view_as(value) for value in sums])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *of_sums: Tensor) -> tuple[Tensor | None, ...]:
        tensors, wanted = ctx.saved_tensors, ctx.needs_input_grad[3:]
        arguments = [leaf(t, is_wanted) for t, is_wanted in zip(tensors[: ctx.count], wanted, strict=False)]
        every = [*arguments, *tensors[ctx.count :]]
        inputs = [tensor for tensor, is_wanted in zip(every, wanted, strict=True) if is_wanted]
        gradients = iter(ctx.gradients(of_sums, arguments, inputs))
        return None, None, None, *(next(gradients) if is_wanted else None for is_wanted in wanted)


def with_gradients(
    sums: Sequence[Tensor],
    backward: Backward,
    arguments: Sequence[Tensor | None] = (),
    parameters: Iterable[Tensor] = (),
) -> tuple[Tensor, ...]:
    """Sums over rows, made differentiable once in all given tensors."""
    found: tuple[Tensor, ...] = _Sum.apply(tuple(sums), backward, len(arguments), *arguments, *parameters)
    return found


def leaf(tensor: Tensor | None, is_wanted: bool) -> Tensor | None:
    """A tensor without its graph, as a leaf of another one."""
    return None if tensor is None else tensor.detach().requires_grad_(is_wanted)
