"""Rows with the rows that are nearest to them."""

from __future__ import annotations

import scipy
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..approximation.input_units import input_units
from .starts import random_rows

_FEW_COLUMNS, _MEASURED = 8, 4096
_ENTRIES = 2**23
"""Entries of distances that are held at a time."""


def groups_of(kernel: Kernel, x: Tensor, rows: Tensor, size: int) -> Tensor:
    """:func:`near_groups` of inputs (N, d) in units of the lengthscales."""
    return near_groups(x.double() / input_units(kernel, x[random_rows(len(x), _MEASURED)]), rows, size)


def near_groups(points: Tensor, rows: Tensor, size: int) -> Tensor:
    """The ``size`` nearest other rows of some rows of points (N, d), and last the row itself, (n, size + 1)."""
    size = min(size, len(points) - 1)
    near = _nearest(points.detach(), rows, size + 1)
    is_own = near == rows.unsqueeze(-1)
    is_own[:, -1] |= ~is_own.any(-1)  # among more equal rows than that
    return torch.cat([near[~is_own].reshape(len(rows), size), rows.unsqueeze(-1)], dim=-1)


def _nearest(points: Tensor, rows: Tensor, count: int) -> Tensor:
    """The nearest rows, themselves included, (n, count)."""
    if points.shape[-1] <= _FEW_COLUMNS:
        exact = points.double().cpu().numpy()
        _, near = scipy.spatial.KDTree(exact).query(exact[rows.cpu().numpy()], count)
        return torch.from_numpy(near).reshape(len(rows), count).to(rows.device)
    rounded = (points - points[:1]).float()
    half = 0.5 * rounded.square().sum(-1)
    chunks = rows.split(max(1, _ENTRIES // len(points)))
    return torch.cat(
        [torch.addmm(half, rounded[chunk], rounded.mT, alpha=-1.0).topk(count, largest=False)[1] for chunk in chunks]
    )
