"""The covariance of what features leave over, given the rows near points, which is zero between blocks."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator, SumLinearOperator
from linear_operator.utils.memoize import cached
from torch import Tensor

from ..posterior.covariance import CholeskyRoot
from .prediction import LocalConditioning
from .residual_draws import ResidualDraws, draws_of


class ResidualCovariance(LinearOperator):
    """The lazy covariance of the residual at inputs (..., N, d) given the rows near them, zero between blocks.

    :param variance: its diagonal, (..., N).
    """

    def __init__(self, x: Tensor, variance: Tensor, conditioning: LocalConditioning) -> None:
        super().__init__(x, variance, conditioning=conditioning)
        self.x, self.variance, self.conditioning = x, variance, conditioning

    @property
    def dtype(self) -> torch.dtype:
        return self.x.dtype

    def _diagonal(self) -> Tensor:
        return self.variance

    def _matmul(self, rhs: Tensor) -> Tensor:
        if self.x.dim() > 2:
            return self.to_dense() @ rhs
        result = torch.zeros_like(rhs)
        with self._tracking():
            for points, covariance in self.conditioning.of_blocks(self.x):
                result[points] = covariance.to(rhs.dtype) @ rhs[points]
        return result

    def _tracking(self) -> torch.set_grad_enabled:
        """Gradients run back to the inputs alone."""
        return torch.set_grad_enabled(torch.is_grad_enabled() and self.x.requires_grad)

    def _size(self) -> torch.Size:
        return torch.Size((*self.variance.shape, self.variance.shape[-1]))

    def _transpose_nonbatch(self) -> ResidualCovariance:
        return self

    @cached(name="dense")
    def to_dense(self) -> Tensor:
        with self._tracking():
            return self.conditioning.covariance(self.x).to(self.dtype)

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        entries: Tensor = to_linear_operator(self.to_dense())._get_indices(row_index, col_index, *batch_indices)
        return entries

    def _getitem(self, row_index: Any, col_index: Any, *batch_indices: Any) -> Any:
        return to_linear_operator(self.to_dense())._getitem(row_index, col_index, *batch_indices)

    def _expand_batch(self, batch_shape: torch.Size) -> LinearOperator:
        return to_linear_operator(self.to_dense().expand(*batch_shape, *self.shape[-2:]))

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """Draws (S, ..., N)."""
        if self.x.dim() > 2:
            return draws_of(self.conditioning.covariance(self.x), num_samples).movedim(-1, 0).to(self.dtype)
        return ResidualDraws(self.conditioning, num_samples).at(self.x).mT.to(self.dtype)


class LocalCovariance(CholeskyRoot, SumLinearOperator):
    """The sum of the posterior covariance of features, and that of the residual."""

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        features, residual = self.linear_ops
        draws: Tensor = features.zero_mean_mvn_samples(num_samples)
        return draws + residual.zero_mean_mvn_samples(num_samples)
