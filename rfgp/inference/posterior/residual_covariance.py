"""What features leave over of the prior covariance at single points, of several outputs with each other."""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
from linear_operator.operators import (
    DenseLinearOperator,
    DiagLinearOperator,
    KroneckerProductLinearOperator,
    LinearOperator,
    SumLinearOperator,
)
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from .covariance import CholeskyRoot, plus_residual


class ResidualCovariance(NamedTuple):
    r"""The residual covariance (T, T) of the outputs at every point, independent between points.

    .. math:: R(x) = K(x, x) - F(x) F(x)^\top = \sum_q r_q(x)\, \Gamma_q

    :param variances: r, (..., N, Q).
    :param outputs: :math:`\Gamma`, (..., Q, T, T).

    >>> ResidualCovariance.of_variance(torch.ones(3)).dense().shape
    torch.Size([3, 1, 1])
    """

    variances: Tensor
    outputs: Tensor

    @classmethod
    def of_variance(cls, variance: Tensor, outputs: Tensor | None = None) -> Self:
        """Variances (..., N), times a covariance (T, T) of the outputs; default: of one output."""
        common = variance.new_ones(1, 1) if outputs is None else outputs
        return cls(variance.unsqueeze(-1), common.unsqueeze(-3))

    @property
    def num_outputs(self) -> int:
        """The number T of outputs."""
        return self.outputs.shape[-1]

    def scaled(self, scale: Tensor) -> Self:
        """That of the kernel times numbers (...)."""
        return self._replace(variances=scale[..., None, None] * self.variances)

    def times(self, outputs: Tensor) -> Self:
        """That of the product of a scalar kernel and a covariance (T, T) of outputs."""
        return self._replace(outputs=self.outputs * outputs)

    def plus(self, other: ResidualCovariance) -> Self:
        """That of a sum of kernels."""
        if self.num_outputs == other.num_outputs == 1:
            return type(self).of_variance(self.variance() + other.variance())
        batch = torch.broadcast_shapes(self.variances.shape[:-1], other.variances.shape[:-1])
        variances = [part.variances.expand(*batch, -1) for part in (self, other)]
        outputs = [part.outputs.to(self.outputs) for part in (self, other)]
        return type(self)(torch.cat(variances, dim=-1), torch.cat(outputs, dim=-3))

    def take(self, rows: slice | Tensor) -> Self:
        """That of some points."""
        return self._replace(variances=self.variances[..., rows, :])

    def double(self) -> Self:
        """The same in float64."""
        return type(self)(self.variances.double(), self.outputs.double())

    def variance(self) -> Tensor:
        """The variances of the outputs, (..., N T), rows interleaved."""
        diagonals = self.outputs.to(self.variances).diagonal(dim1=-2, dim2=-1).unsqueeze(-3)
        return (self.variances.unsqueeze(-1) * diagonals).sum(-2).flatten(-2)

    def dense(self) -> Tensor:
        """The covariances of the outputs at every point, (..., N, T, T)."""
        return torch.einsum("...nq,...qtu->...ntu", self.variances, self.outputs.to(self.variances))

    def draws(self, num_samples: int) -> Tensor:
        """Independent draws at every point, (S, ..., N, T)."""
        roots = psd_safe_cholesky(self.outputs.double()).to(self.variances)
        shape = (num_samples, *self.variances.shape, self.num_outputs)
        noise = torch.randn(shape, dtype=self.variances.dtype, device=self.variances.device)
        return torch.einsum("s...nqu,...qtu->s...nt", noise * self.variances.sqrt().unsqueeze(-1), roots)

    def added_to(self, covariance: LinearOperator) -> LinearOperator:
        """The sum with a covariance (..., N T, N T), rows interleaved; no more than that is ever formed."""
        if self.num_outputs == 1:
            return plus_residual(covariance, self.variance())
        return CovariancePlusBlocks(covariance, *self._operators(covariance.dtype))

    def _operators(self, dtype: torch.dtype) -> list[LinearOperator]:
        pairs = zip(self.variances.to(dtype).unbind(-1), self.outputs.to(dtype).unbind(-3), strict=True)
        return [KroneckerProductLinearOperator(DiagLinearOperator(r), DenseLinearOperator(c)) for r, c in pairs]


class CovariancePlusBlocks(CholeskyRoot, SumLinearOperator):
    """The sum of a posterior covariance of several outputs and of residual covariances of single points."""

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        covariance, *blocks = self.linear_ops
        draws: Tensor = covariance.zero_mean_mvn_samples(num_samples)
        parts = [block.linear_ops for block in blocks]
        variances = torch.stack([variance.diagonal(dim1=-1, dim2=-2) for variance, _ in parts], dim=-1)
        outputs = torch.stack([outputs.to_dense() for _, outputs in parts], dim=-3)
        return draws + ResidualCovariance(variances, outputs).draws(num_samples).flatten(-2)
