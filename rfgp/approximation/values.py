"""The values of any GPyTorch kernel, dense and in float64, whatever the dtype of its parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import IndexKernel, Kernel
from linear_operator import to_dense
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.func import functional_call


def accurate_values(kernel: Kernel, x: Tensor, y: Tensor, diag: bool = False) -> Tensor:
    """The matrix (..., N, M) of a scalar kernel in float64, or the diagonal (..., N), without ``active_dims``."""
    batch = torch.broadcast_shapes(kernel.batch_shape, x.shape[:-2], y.shape[:-2])
    rows = [inputs.double().expand(*batch, *inputs.shape[-2:]) for inputs in (x, y)]
    module = _Values(kernel)
    named = [*module.named_parameters(), *module.named_buffers()]
    found = {name: value for name, value in named if value.is_floating_point()}
    has_index = any(isinstance(part, IndexKernel) for part in kernel.modules())
    if not has_index and all(value.dtype == torch.float64 for value in found.values()):
        exact: Tensor = module(*rows, diag)
        return exact
    tensors = {name: value.double() for name, value in found.items()}

    def evaluate(x: Tensor, y: Tensor, *values: Tensor) -> Tensor:
        dense: Tensor = functional_call(module, dict(zip(tensors, values, strict=True)), (x, y, diag))
        return dense

    if has_index:
        recomputed: Tensor = _Recomputed.apply(evaluate, *rows, *tensors.values())
        return recomputed
    return evaluate(*rows, *tensors.values())


def accurate_blocks(kernel: Kernel, differences: Tensor) -> Tensor:
    """The values (..., n, T, T) of a stationary kernel of T outputs at differences (n, d)."""
    dense = accurate_values(kernel, differences, torch.zeros_like(differences[:1]))
    return dense.unflatten(-2, (len(differences), -1))


def accurate_variances(kernel: Kernel, differences: Tensor) -> Tensor:
    """Those of each output with itself, (..., n, T)."""
    return accurate_blocks(kernel, differences).diagonal(dim1=-2, dim2=-1)


class _Recomputed(torch.autograd.Function):
    """A function without a graph, whose backward computes it again; an IndexKernel's reads saved tensors twice."""

    @staticmethod
    def forward(ctx: Any, evaluate: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        ctx.evaluate = evaluate
        ctx.save_for_backward(*tensors)
        return evaluate(*tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        needed = ctx.needs_input_grad[1:]
        tensors = [t.detach().requires_grad_(n) for t, n in zip(ctx.saved_tensors, needed, strict=True)]
        with torch.enable_grad():
            values = ctx.evaluate(*tensors)
        wanted = [tensor for tensor in tensors if tensor.requires_grad]
        gradients = iter(torch.autograd.grad(values, wanted, gradient, allow_unused=True))
        return None, *(next(gradients) if n else None for n in needed)


class _Values(torch.nn.Module):
    """The values of a kernel as a module whose tensors can be replaced in a call."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, x: Tensor, y: Tensor, diag: bool) -> Tensor:
        if not diag:
            return to_dense(self.kernel.forward(x, y))
        values = self.kernel.forward(x, y, diag=True)
        if values.dim() == x.dim():  # those of a kernel that does not know of diag
            values = values.diagonal(dim1=-1, dim2=-2)
        return to_dense(values)
