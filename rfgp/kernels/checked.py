"""Kernels that check their inputs before GPyTorch uses them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .._support import checks
from .._support.gpytorch_names import EVALUATED_KERNELS


class CheckedKernel:
    """A base class that comes before GPyTorch's Kernel, and checks the inputs of every call."""

    def __call__(self, x1: Tensor, x2: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """The kernel of checked x1 (..., N, d) and x2 (..., M, d); (N,) stands for a single column."""
        shapes = [_shape(x, name) for name, x in (("x1", x1), ("x2", x2)) if x is not None or name == "x1"]
        if shapes[0][-1] != shapes[-1][-1]:
            raise ValueError(
                f"expected x1 and x2 with equally many columns, got {shapes[0][-1]} and {shapes[-1][-1]}; use "
                "unsqueeze(0) for a single row"
            )
        kernel: Any = self
        if kernel.ard_num_dims not in (None, shapes[0][-1]) and kernel.active_dims is None:
            raise ValueError(
                f"expected x with {kernel.ard_num_dims} columns as ard_num_dims says, got {shapes[0][-1]}; correct "
                "one of the two"
            )
        return super().__call__(x1, x2, *args, **kwargs)  # type: ignore[misc]


def refuse_last_dim_is_batch(last_dim_is_batch: bool) -> None:
    """Raise a ValueError where GPyTorch asks for one kernel a column."""
    if last_dim_is_batch:
        raise ValueError("expected last_dim_is_batch=False, got True; sum kernels over active_dims instead")


def check_columns(kernel: Any, x: Tensor) -> None:
    """Raise a ValueError where an exact kernel cannot be evaluated at inputs (n, d); nothing for what is no kernel."""
    if not isinstance(kernel, Kernel):
        return
    try:
        with torch.no_grad(), EVALUATED_KERNELS:
            copy.deepcopy(kernel).double()(x[:1].double(), diag=True)
    except (RuntimeError, IndexError) as error:
        raise ValueError(
            f"expected inputs at which the {type(kernel).__name__} can be evaluated, got {x.shape[-1]} columns "
            f"({error}); correct ard_num_dims, active_dims or the inputs"
        ) from error


def _shape(x: Any, name: str) -> tuple[int, ...]:
    if checks.floating(x, name).dim() == 0:
        raise ValueError(f"expected {name} of shape (..., N, d), got a single number; use {name}.reshape(1, 1)")
    return (*x.shape, 1) if x.dim() == 1 else tuple(x.shape)
