"""Log densities of groups of rows that were left out, and the matrices of groups from those of rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...linalg.complex_numbers import real_part, squared_modulus


class LowRankDensity:
    r"""The log density of errors with a covariance :math:`R R^H + S` of a root that comes in chunks of rows.

    .. math:: e^H (S + R R^H)^{-1} e = e^H S^{-1} e - b^H A^{-1} b, \qquad A = I + R^H S^{-1} R, \qquad
        b = R^H S^{-1} e
    """

    def __init__(self, is_complex: bool) -> None:
        self.share, self.circle = (1.0, math.pi) if is_complex else (0.5, 2.0 * math.pi)
        self.inner: Tensor | float = 0.0
        self.cross: Tensor | float = 0.0
        self.terms: Tensor | float = 0.0

    def add(self, error: Tensor, root: Tensor, noise: Tensor, missing: Tensor) -> None:
        """Add rows: errors and a mask of missing ones (..., n, T), roots (..., n, T, K), noises S (..., n, T, T)."""
        factor = torch.linalg.cholesky(noise)
        columns = torch.cat([root.to(error.dtype), error.unsqueeze(-1)], dim=-1).masked_fill(missing.unsqueeze(-1), 0.0)
        white = torch.linalg.solve_triangular(factor.to(columns.dtype), columns, upper=False).flatten(-3, -2)
        roots, values = white[..., :-1], white[..., -1:]
        self.inner, self.cross = self.inner + roots.mH @ roots, self.cross + roots.mH @ values
        terms = 2.0 * factor.diagonal(dim1=-2, dim2=-1).log() + math.log(self.circle)
        noise_terms = terms.masked_fill(missing, 0.0).sum((-2, -1))
        self.terms = self.terms + squared_modulus(values).sum((-2, -1)) + noise_terms

    def value(self) -> Tensor:
        """The log density, (...)."""
        inner = torch.as_tensor(self.inner)
        factor = torch.linalg.cholesky(inner + torch.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device))
        explained = torch.linalg.solve_triangular(factor, torch.as_tensor(self.cross), upper=False)
        log_det = 2.0 * real_part(factor.diagonal(dim1=-2, dim2=-1)).log().sum(-1)
        return -self.share * (self.terms - squared_modulus(explained).sum((-2, -1)) + log_det)


def block_diagonal(blocks: Tensor, size: int) -> Tensor:
    """Matrices (..., g m, T, T) of rows as block-diagonal ones of their groups, (..., g, m T, m T)."""
    if size == 1:
        return blocks
    by_group = blocks.unflatten(-3, (-1, size))
    identity = torch.eye(size, dtype=blocks.dtype, device=blocks.device)
    return torch.einsum("...atu,ab->...atbu", by_group, identity).flatten(-2).flatten(-3, -2)


def diagonal_blocks(matrices: Tensor, size: int) -> Tensor:
    """The blocks (..., g m, T, T) of rows on the diagonal of matrices of their groups, (..., g, m T, m T)."""
    blocks = matrices.unflatten(-2, (size, -1)).unflatten(-1, (size, -1))
    return blocks.diagonal(dim1=-4, dim2=-2).movedim(-1, -3).flatten(-4, -3)


def noise_covariance(precision: Tensor, missing: Tensor) -> Tensor:
    """The noise covariance (..., N, T, T) of what is observed, and ones for what is missing."""
    whole = precision + torch.diag_embed(missing.to(precision.dtype))
    return 1.0 / whole if whole.shape[-1] == 1 else torch.linalg.inv(whole)


def log_density(error: Tensor, covariance: Tensor, missing: Tensor, is_complex: bool) -> Tensor:
    """The log density (..., N) of errors that are observed."""
    present, absent = error.masked_fill(missing, 0.0), missing.to(covariance.dtype)
    both = (1.0 - absent).unsqueeze(-1) * (1.0 - absent).unsqueeze(-2)
    whole = covariance * both + torch.diag_embed(absent)
    if whole.shape[-1] == 1:
        factor = whole.sqrt()
        white = present / factor.squeeze(-1)
    else:
        factor = torch.linalg.cholesky(whole)
        white = torch.linalg.solve_triangular(factor.to(present.dtype), present.unsqueeze(-1), upper=False).squeeze(-1)
    share, circle = (1.0, math.pi) if is_complex else (0.5, 2.0 * math.pi)
    terms = squared_modulus(white) + 2.0 * real_part(factor.diagonal(dim1=-2, dim2=-1)).log() + math.log(circle)
    return -share * terms.masked_fill(missing, 0.0).sum(-1)
