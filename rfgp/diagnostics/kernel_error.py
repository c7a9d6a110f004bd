"""How far an approximate kernel matrix is from the exact one."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from .._support import checks
from .._support.gpytorch_names import EVALUATED_KERNELS

_ROWS = 1024


def relative_frobenius_error(kernel: Any, x: Tensor, y: Tensor | None = None) -> Tensor:
    r"""The error :math:`\|\hat K - K\|_F / \|K\|_F` of an approximated kernel, diagonal included.

    :param kernel: a kernel made by :func:`rfgp.approximate`.
    :param x: inputs (N, d).
    :param y: inputs (M, d); default: x.
    :returns: a float64 scalar, or one per batch element of the kernel; evaluated in blocks of rows.
    :raises ValueError: for bad inputs, or a kernel without features.

    >>> import gpytorch, rfgp
    >>> kernel = rfgp.approximate(gpytorch.kernels.LinearKernel(), num_features=2, input_dim=2)
    >>> bool(relative_frobenius_error(kernel, torch.rand(10, 2)) < 1e-6)
    True
    """
    if not hasattr(kernel, "features"):
        raise ValueError(
            f"expected a kernel made by rfgp.approximate, got {type(kernel).__name__}; wrap it with rfgp.approximate"
        )
    checks.finite(checks.inputs(x))
    other = x if y is None else checks.finite(checks.inputs(y, x.shape[-1], "y"), "y")
    exact = copy.deepcopy(kernel.exact_kernel).double()
    with torch.no_grad(), EVALUATED_KERNELS:
        right = _accurate(kernel.features(other))
        error = norm = torch.zeros((), dtype=torch.float64, device=x.device)
        for rows in x.split(_ROWS, dim=-2):
            estimate = _accurate(kernel.features(rows)) @ right.mH
            reference = exact(rows.double(), other.double()).to_dense()
            estimate = estimate.real if estimate.is_complex() else estimate
            error = error + (estimate - reference).square().sum((-2, -1))
            norm = norm + reference.square().sum((-2, -1))
        return (error / norm).sqrt()


def _accurate(features: Tensor) -> Tensor:
    return features.to(torch.complex128 if features.is_complex() else torch.float64)
