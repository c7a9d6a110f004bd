r"""Simplex coding: classes as the corners of a regular simplex, for classification by vector-valued regression."""

from __future__ import annotations

import math
from typing import Any

import scipy
import torch
from torch import Tensor

from ..._support import checks

_MATRICES = 3  # Helmert's matrix, its scaled copy and the result


def simplex_code(num_classes: int, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Tensor:
    r"""The corners (p, p + 1) of a regular simplex, one unit column per class; B 6.1.1 with the errata.

    .. math:: B_2 = \begin{pmatrix} 1 & -1 \end{pmatrix}, \qquad B_{p+1} = \begin{pmatrix} 1 & u^\top \\
        0 & \sqrt{1 - p^{-2}}\, B_p \end{pmatrix}, \qquad u = -\tfrac1p 1 \in R^p
    """
    num_classes = checks.positive_integer("num_classes", num_classes)
    if num_classes < 2:
        raise ValueError(
            f"expected at least two classes, got num_classes={num_classes}; there is nothing to tell apart"
        )
    what = f"the code of {num_classes} classes"
    checks.fits_in_memory(_MATRICES * 8.0 * num_classes**2, what, "correct num_classes, or merge classes")
    dtype = torch.get_default_dtype() if dtype is None else checks.floating_dtype("dtype", dtype)
    code = -math.sqrt(num_classes / (num_classes - 1)) * scipy.linalg.helmert(num_classes)[::-1, ::-1]
    return torch.tensor(code, dtype=dtype, device=device)


def encode(labels: Tensor, num_classes: int, dtype: torch.dtype | None = None) -> Tensor:
    """The corners (N, p) of integer classes (N,), as targets of a regression with one output less than classes."""
    code = simplex_code(num_classes, dtype)
    if not isinstance(labels, Tensor) or labels.dim() != 1:
        got = tuple(labels.shape) if isinstance(labels, Tensor) else type(labels).__name__
        raise ValueError(f"expected a tensor of class labels of shape (N,), got {got}; flatten it")
    return code.to(labels.device).mT[checks.labels(labels, labels.unsqueeze(-1), int(num_classes), "labels")]


def decode(values: Any) -> Tensor:
    """The classes (...), integers from 0 to p, whose corners have the largest inner products with values (..., p)."""
    if not isinstance(values, Tensor) or not values.is_floating_point() or values.dim() == 0 or values.shape[-1] == 0:
        got = f"{values.dtype} of shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(f"expected floating-point values of shape (..., p), got {got}; pass those of a regression")
    checks.finite(checks.tensor(values, "values"), "values")
    return (values @ simplex_code(values.shape[-1] + 1, values.dtype, values.device)).argmax(-1)
