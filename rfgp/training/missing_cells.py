"""Covariances of outputs of which some cells are missing."""

from __future__ import annotations

import torch
from torch import Tensor


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
    values, vectors = torch.linalg.eigh(matrix)
    least = 1e-6 * values[-1].clamp_min(torch.finfo(values.dtype).tiny)
    return vectors * values.clamp_min(float(least)) @ vectors.mT
