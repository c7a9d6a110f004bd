"""Gauss-Legendre nodes of the regions that rows describe."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor

from .rows import ObservationRows


def nodes(rows: ObservationRows, order: int) -> tuple[Tensor, Tensor]:
    """Nodes (..., N, Q, d) of regions that extend in the same directions, and their weights (Q,), which sum to 1."""
    center, directions = rows.center, [*torch.diag_embed(rows.half_widths).unbind(-2), rows.half_vector]
    extended = [direction for direction in directions if bool((direction != 0).any())]
    abscissas, masses = np.polynomial.legendre.leggauss(order)
    grid = list(itertools.product(range(order), repeat=len(extended)))
    chosen = torch.tensor(grid, dtype=torch.long).reshape(len(grid), len(extended))
    places = torch.as_tensor(abscissas, dtype=center.dtype)[chosen].to(center.device)
    mass = torch.as_tensor(0.5 * masses, dtype=center.dtype)[chosen].prod(-1).to(center.device)
    offsets = torch.zeros_like(center).unsqueeze(-2)
    for column, direction in enumerate(extended):
        offsets = offsets + places[:, column, None] * direction.unsqueeze(-2)
    return center.unsqueeze(-2) + offsets, mass


def extents(rows: ObservationRows) -> Tensor:
    """Which directions the regions of rows extend in, (N, d + 1); over all batches."""
    is_wide = torch.cat([rows.half_widths != 0, (rows.half_vector != 0).any(-1, keepdim=True)], dim=-1)
    return is_wide.reshape(-1, *is_wide.shape[-2:]).any(0)
