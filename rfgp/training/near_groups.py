"""Rows with the rows that are nearest to them."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..approximation.input_units import input_units
from ..linalg.nearest import NearestRows
from .starts import random_rows

_MEASURED = 4096


def groups_of(kernel: Kernel, x: Tensor, rows: Tensor, size: int) -> Tensor:
    """:func:`near_groups` of inputs (N, d) in units of the lengthscales."""
    return near_groups(x.double() / input_units(kernel, x[random_rows(len(x), _MEASURED)]), rows, size)


def near_groups(points: Tensor, rows: Tensor, size: int) -> Tensor:
    """The ``size`` nearest other rows of some rows of points (N, d), and last the row itself, (n, size + 1)."""
    size = min(size, len(points) - 1)
    nearest = NearestRows(points)
    near = nearest.query(nearest.points[rows.cpu()], size + 1).to(rows.device)
    is_own = near == rows.unsqueeze(-1)
    is_own[:, -1] |= ~is_own.any(-1)  # among more equal rows than that
    return torch.cat([near[~is_own].reshape(len(rows), size), rows.unsqueeze(-1)], dim=-1)
