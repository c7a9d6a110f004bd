"""The covariance of what features leave over, between points that lie in the same block."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator
from torch import Tensor

from .prediction import LocalConditioning


class ResidualCovariance(LinearOperator):
    """The lazy covariance of the residual at inputs (N, d) given the training rows: zero between different blocks."""

    def __init__(self, x: Tensor, variance: Tensor, conditioning: LocalConditioning) -> None:
        super().__init__(x, variance, conditioning=conditioning)
        self.x, self.variance, self.conditioning = x, variance, conditioning

    @property
    def dtype(self) -> torch.dtype:
        return self.x.dtype

    def _diagonal(self) -> Tensor:
        return self.variance

    def _matmul(self, rhs: Tensor) -> Tensor:
        result = torch.zeros_like(rhs)
        for points, _, conditional in self.conditioning.conditionals(self.x):
            result[points] = conditional.covariance.to(rhs.dtype) @ rhs[points]
        return result

    def _size(self) -> torch.Size:
        return torch.Size((len(self.x), len(self.x)))

    def _transpose_nonbatch(self) -> ResidualCovariance:
        return self

    def to_dense(self) -> Tensor:
        return self._matmul(torch.eye(len(self.x), dtype=self.dtype, device=self.x.device))

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        entries: Tensor = to_linear_operator(self.to_dense())._get_indices(row_index, col_index, *batch_indices)
        return entries

    def _getitem(self, row_index: Any, col_index: Any, *batch_indices: Any) -> Any:
        return to_linear_operator(self.to_dense())._getitem(row_index, col_index, *batch_indices)

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """Draws (S, N), one block of points after the other."""
        draws = self.x.new_empty(len(self.x), num_samples)
        for points, _, conditional in self.conditioning.conditionals(self.x):
            draws[points] = draws_of(conditional.covariance, num_samples).to(self.dtype)
        return draws.mT


def draws_of(covariance: Tensor, num_samples: int) -> Tensor:
    """Draws (t, S) of a normal distribution whose covariance (t, t) may be singular, but for rounding."""
    values, vectors = torch.linalg.eigh(covariance)
    noise = torch.randn(len(values), num_samples, dtype=values.dtype, device=values.device)
    return vectors @ (values.clamp_min(0.0).sqrt().unsqueeze(-1) * noise)
