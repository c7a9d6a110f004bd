"""Sums over rows with gradients at the memory of one chunk: on the way back, the sums of every chunk are made again.

What all chunks share, such as a factor of the landmarks, is made once: :func:`made_once`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .rows import Part

Graph = Callable[..., Sequence[Tensor]]
"""Takes a chunk of the tensors by row and the shared ones, and returns the sums over it with their graph; the values of
the sums do not matter."""
Backward = Callable[[Sequence[Tensor], Sequence[Tensor | None], Sequence[Tensor]], Sequence[Tensor | None]]
"""Takes the gradients of the sums, their arguments without a graph, and the inputs whose gradients it returns."""


class _MadeOnce:
    """Values of parameters that all chunks share: leaves of the graphs of chunks, with the sums of their gradients."""

    def __init__(self) -> None:
        self._values: dict[object, Tensor] = {}
        self._leaves: dict[object, Tensor] = {}

    def of(self, owner: object, compute: Callable[[], Tensor]) -> Tensor:
        if owner not in self._values:
            value = self._values[owner] = compute()
            self._leaves[owner] = value.detach().requires_grad_(value.requires_grad)
        return self._leaves[owner]

    @property
    def leaves(self) -> list[Tensor]:
        return [leaf for leaf in self._leaves.values() if leaf.requires_grad]

    def add(self, gradients: Iterable[Tensor | None]) -> None:
        """Add gradients of the leaves."""
        for leaf, gradient in zip(self.leaves, gradients, strict=True):
            leaf.grad = gradient if leaf.grad is None else leaf.grad if gradient is None else leaf.grad + gradient

    def passed_back(self, inputs: Sequence[Tensor]) -> Sequence[Tensor | None]:
        """The gradients of other inputs, from those of the leaves."""
        found = [(self._values[owner], leaf.grad) for owner, leaf in self._leaves.items() if leaf.grad is not None]
        return _gradients([value for value, _ in found], [gradient for _, gradient in found], inputs)


_PASS: ContextVar[_MadeOnce | None] = ContextVar("values that the chunks of a pass share", default=None)


@contextmanager
def _in_pass(shared: _MadeOnce | None) -> Iterator[None]:
    token = _PASS.set(shared)
    try:
        yield
    finally:
        _PASS.reset(token)


def made_once(owner: object, compute: Callable[[], Tensor]) -> Tensor:
    """A value of parameters with its graph: on the way back through chunks of rows, one for all of them."""
    shared = _PASS.get()
    return compute() if shared is None else shared.of(owner, compute)


class _Recomputed(torch.autograd.Function):
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
        arguments = [_leaf(t, is_wanted) for t, is_wanted in zip(tensors[: ctx.count], wanted, strict=False)]
        every = [*arguments, *tensors[ctx.count :]]
        inputs = [tensor for tensor, is_wanted in zip(every, wanted, strict=True) if is_wanted]
        with _in_pass(None):
            gradients = iter(ctx.gradients(of_sums, arguments, inputs))
        return None, None, None, *(next(gradients) if is_wanted else None for is_wanted in wanted)


def recomputed(
    sums: Sequence[Tensor],
    backward: Backward,
    arguments: Sequence[Tensor | None] = (),
    parameters: Iterable[Tensor] = (),
) -> tuple[Tensor, ...]:
    """Sums that were computed without a graph, made differentiable once in arguments and parameters."""
    found: tuple[Tensor, ...] = _Recomputed.apply(tuple(sums), backward, len(arguments), *arguments, *parameters)
    return found


def recomputed_by_chunk(
    sums: Sequence[Tensor],
    graph: Graph,
    parts: Sequence[Part],
    by_row: Sequence[Tensor | None],
    shared: Sequence[Tensor] = (),
    parameters: Iterable[Tensor] = (),
) -> tuple[Tensor, ...]:
    """:func:`recomputed` for sums over chunks of tensors by row, with other tensors that all chunks share."""
    count = len(by_row)

    def backward(
        of_sums: Sequence[Tensor], arguments: Sequence[Tensor | None], inputs: Sequence[Tensor]
    ) -> list[Tensor | None]:
        return gradients_of_chunks(graph, of_sums, parts, arguments[:count], arguments[count:], inputs)

    return recomputed(sums, backward, (*by_row, *shared), parameters)


def gradients_of_chunks(
    graph: Graph,
    of_sums: Sequence[Tensor],
    parts: Sequence[Part],
    by_row: Sequence[Tensor | None],
    shared: Sequence[Tensor | None],
    inputs: Sequence[Tensor],
) -> list[Tensor | None]:
    """The gradients of sums over rows in some tensors, at the memory of one chunk; None where there is none."""
    arguments = [*by_row, *shared]
    by_argument = {k: torch.zeros_like(t) for k, t in enumerate(arguments) if t is not None and t.requires_grad}
    total: list[Tensor | None] = [None] * len(inputs)
    once = _MadeOnce()
    for part in parts:
        of_part = [None if tensor is None else tensor[part] for tensor in by_row]
        leaves = [_leaf(tensor, k in by_argument) for k, tensor in enumerate([*of_part, *shared])]
        with torch.enable_grad(), _in_pass(once):
            sums = graph(*leaves)
        wanted = [*(leaves[k] for k in by_argument), *inputs]
        added = _gradients(sums, of_sums, [*wanted, *once.leaves])
        once.add(added[len(wanted) :])
        for k, gradient in zip(by_argument, added, strict=False):
            if gradient is not None and k < len(by_row):
                by_argument[k][part] = gradient
            elif gradient is not None:
                by_argument[k] += gradient
        total = added_up(total, added[len(by_argument) : len(wanted)])
    total = added_up(total, once.passed_back(inputs))
    return added_up(total, _gradients([arguments[k] for k in by_argument], [*by_argument.values()], inputs))


def added_up(first: Iterable[Tensor | None], second: Iterable[Tensor | None]) -> list[Tensor | None]:
    """The sums of gradients, where None is zero."""
    pairs = zip(first, second, strict=True)
    return [b if a is None else a if b is None else a + b for a, b in pairs]


def _leaf(tensor: Tensor | None, is_wanted: bool) -> Tensor | None:
    """A tensor without its graph, as a leaf of another one."""
    return None if tensor is None else tensor.detach().requires_grad_(is_wanted)


def _gradients(
    outputs: Sequence[Tensor | None], of_outputs: Sequence[Tensor], inputs: Sequence[Any]
) -> Sequence[Tensor | None]:
    """The gradients of inputs, from those of tensors that were made of them."""
    pairs = zip(outputs, of_outputs, strict=True)
    tracked = [(output, of_output) for output, of_output in pairs if output is not None and output.requires_grad]
    if not tracked or not inputs:
        return [None] * len(inputs)
    found, of_found = zip(*tracked, strict=True)
    return torch.autograd.grad(found, inputs, of_found, allow_unused=True)
