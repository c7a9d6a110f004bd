"""The private names of PyTorch that concern its transforms and compiler."""

from __future__ import annotations

import torch
from torch import Tensor


def has_values() -> bool:
    """Whether tensors have values: not while PyTorch compiles, traces or transforms a function by ``torch.func``."""
    is_recorded = torch.compiler.is_compiling() or torch.jit.is_tracing()
    return not is_recorded and not is_transformed()


def is_transformed() -> bool:
    """Whether ``torch.func`` transforms a function: tensors that are made then are of no use after it."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def is_exporting() -> bool:
    """Whether ``torch.export`` records a program, where numbers of rows are symbols; PyTorch tells since 2.7."""
    return bool(getattr(torch.compiler, "is_exporting", bool)())


def are_equal(a: Tensor, b: Tensor) -> bool:
    """``torch.equal``, also of the batches that ``torch.func.vmap`` makes of tensors."""
    while torch._C._functorch.is_functorch_wrapped_tensor(a) and torch._C._functorch.is_functorch_wrapped_tensor(b):
        if torch._C._functorch.maybe_get_bdim(a) != torch._C._functorch.maybe_get_bdim(b):
            return False
        a, b = torch._C._functorch.get_unwrapped(a), torch._C._functorch.get_unwrapped(b)
    return torch.equal(a, b)


def assert_in_graph(condition: Tensor, message: str) -> None:
    """Let a compiled function raise a RuntimeError whenever a condition is not true as it runs."""
    torch._assert_async(condition, message)
