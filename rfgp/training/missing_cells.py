"""Covariances of outputs of which some cells are missing, and what these cells probably are."""

from __future__ import annotations

import torch
from torch import Tensor

_RANK, _ROWS_AT_A_TIME = 16, 1024


def pairwise_covariance(residual: Tensor) -> Tensor:
    """The covariance (T, T) of residuals (N, T), each entry from the rows that have both, made positive definite."""
    return positive_definite(covariance_of_pairs(residual))


def covariance_of_pairs(residual: Tensor) -> Tensor:
    """The same as it is: (T, T), perhaps with negative eigenvalues."""
    is_known = (~residual.isnan()).double()
    known = residual.nan_to_num()
    return (known.mT @ known) / (is_known.mT @ is_known).clamp_min(1.0)


def positive_definite(matrix: Tensor) -> Tensor:
    """A symmetric matrix with eigenvalues of at least 1e-6 of the largest."""
    values, vectors = _spectrum(matrix)
    return vectors * values @ vectors.mT


def _spectrum(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, of at least 1e-6 of the largest, and eigenvectors."""
    values, vectors = torch.linalg.eigh(matrix)
    least = 1e-6 * values[-1].clamp_min(torch.finfo(values.dtype).tiny)
    return values.clamp_min(float(least)), vectors


def complete(residual: Tensor, covariance_of_outputs: Tensor) -> None:
    r"""Replace NaN in residuals (N, T) by means given other cells of the row, by leading eigenvectors V.

    .. math:: V (V^\top O V + \delta \Lambda^{-1})^{-1} V^\top O r
    """
    rows = residual.isnan().any(-1).nonzero().squeeze(-1)
    if not len(rows):
        return
    values, vectors = _spectrum(covariance_of_outputs)
    rank = min(_RANK, len(values) - 1)
    leading, level = vectors[:, -rank:], values[:-rank].mean() / values[-rank:]
    products = (leading.unsqueeze(-1) * leading.unsqueeze(-2)).flatten(1)
    for chunk in rows.split(_ROWS_AT_A_TIME):
        is_missing, known = residual[chunk].isnan(), residual[chunk].nan_to_num()
        inner = ((~is_missing).double() @ products).unflatten(-1, (rank, rank)) + torch.diag(level)
        weights = torch.linalg.solve(inner, known @ leading)
        residual[chunk] = torch.where(is_missing, weights @ leading.mT, known)
