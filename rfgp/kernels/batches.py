"""Batches of kernels by number and by shape, through scales, sums, products and changed inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, MultitaskKernel, ProductKernel, ScaleKernel

from .._support.gpytorch_names import batch_shape_of, modules_of, set_batch_shape
from .changed_inputs import ChangesInputs
from .decomposable import DecomposableKernel
from .operator_valued import without_dims

_COMPOSED = (ScaleKernel, AdditiveKernel, ProductKernel, ChangesInputs)


def indexed(kernel: Kernel, index: Any) -> Kernel:
    """The elements of a batch of kernels; GPyTorch would index ``active_dims``, and miss what is deeper inside.

    :raises ValueError: for kernels of several tasks.
    """
    return _changed(kernel, lambda part: part[index]) if kernel.batch_shape else kernel


def expanded(kernel: Kernel, *sizes: Any) -> Kernel:
    """The kernel with a larger batch shape, with its parameters repeated."""
    return _changed(kernel, lambda part: part.expand_batch(*sizes))


def _changed(kernel: Any, change: Callable[[Kernel], Kernel]) -> Any:
    """A kernel with a change of every part that has tensors of its own."""
    if isinstance(kernel, MultitaskKernel) and not isinstance(kernel, DecomposableKernel):
        raise ValueError("expected a kernel of several tasks without batch dimensions; make one per element")
    if not isinstance(kernel, _COMPOSED):
        changed = change(without_dims(kernel))
        changed.active_dims = kernel.active_dims
        return changed
    composed: Any = kernel
    twin: Any = copy.deepcopy(kernel, {id(part): _changed(part, change) for part in _direct(composed)})
    if isinstance(composed, ScaleKernel):
        shape = composed.raw_outputscale.shape
        alone = ScaleKernel(Kernel(), batch_shape=shape)
        alone.raw_outputscale.data = composed.raw_outputscale.data.reshape(shape)
        scale: Any = change(alone)
        twin.raw_outputscale = torch.nn.Parameter(scale.raw_outputscale.detach().clone())
        set_batch_shape(twin, batch_shape_of(scale))
    return twin


def _direct(kernel: torch.nn.Module) -> list[Any]:
    """The kernels inside one that are in no other one inside it."""
    found: list[Any] = []
    for part in modules_of(kernel).values():
        found += [part] if isinstance(part, Kernel) else _direct(part) if isinstance(part, torch.nn.ModuleList) else []
    return found
