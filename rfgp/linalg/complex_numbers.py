"""Dense tensors of real or complex numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._support import checks


def check_numbers(value: Any, name: str) -> Tensor:
    """Return ``value``, or raise where it is not a dense tensor of floating-point or complex numbers."""
    if not checks.tensor(value, name).is_complex():
        checks.floating(value, name)
    return value


def check_square(matrix: Any, name: str = "matrix") -> Tensor:
    """Return ``matrix``, or raise where it is not a dense tensor (..., D, D) of numbers."""
    if check_numbers(matrix, name).dim() < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(f"expected {name} of shape (..., D, D), got {tuple(matrix.shape)}; pass square matrices")
    return matrix


def real_part(x: Tensor) -> Tensor:
    """The real part."""
    return x.real if x.is_complex() else x


def squared_modulus(x: Tensor) -> Tensor:
    """The squared modulus."""
    return x.real.square() + x.imag.square() if x.is_complex() else x.square()


def accurate_dtype(dtype: torch.dtype) -> torch.dtype:
    """The double-precision dtype of the same kind: complex128 for complex dtypes, else float64.

    >>> accurate_dtype(torch.complex64)
    torch.complex128
    """
    return torch.complex128 if dtype.is_complex else torch.float64
