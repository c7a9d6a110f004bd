"""The posterior covariance of functions, whose features are made chunk by chunk, and what features leave over of it."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import torch
from linear_operator.operators import (
    AddedDiagLinearOperator,
    DenseLinearOperator,
    DiagLinearOperator,
    KroneckerProductLinearOperator,
    LinearOperator,
    RootLinearOperator,
    SumLinearOperator,
    TriangularLinearOperator,
)
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.memoize import cached
from torch import Tensor

from ..._support.gpytorch_names import keep_arguments, parts_of
from ...linalg import joined, row_chunks
from .factor import OutputFactor
from .posterior import GaussianPosterior

Index = Tensor | slice
"""Which rows, columns or batches are asked for."""


class CholeskyRoot(LinearOperator):
    """A covariance whose root decomposition is its Cholesky factor, whatever its size and the settings.

    Base samples thus have the shape of the mean.
    """

    @cached(name="root_decomposition")
    def root_decomposition(self, method: str | None = None) -> LinearOperator:
        decomposition: LinearOperator = super().root_decomposition(method or "cholesky")
        return decomposition


class FunctionCovariance(CholeskyRoot, abc.ABC):
    r"""A covariance :math:`R R^\top` of N values by a root R of any width, which draws without base samples take."""

    @abc.abstractmethod
    def _root(self) -> Tensor:
        """R, (..., N, K)."""

    @cached(name="cholesky")
    def _cholesky(self, upper: bool = False) -> TriangularLinearOperator:
        root = self._root().double()
        return TriangularLinearOperator(psd_safe_cholesky(root @ root.mT, upper=upper).to(self.dtype), upper=upper)


class RootCovariance(FunctionCovariance):
    """A covariance with a known root R, (..., N, K)."""

    def __init__(self, root: Tensor) -> None:
        super().__init__(root)
        self.root = root

    def _root(self) -> Tensor:
        return self.root

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.root @ (self.root.mT @ rhs)

    def _size(self) -> torch.Size:
        return torch.Size((*self.root.shape[:-1], self.root.shape[-2]))

    def _transpose_nonbatch(self) -> Self:
        return self

    def _diagonal(self) -> Tensor:
        return self.root.square().sum(-1)

    def _expand_batch(self, batch_shape: torch.Size) -> Self:
        return self.__class__(self.root.expand(*batch_shape, *self.root.shape[-2:]))

    def _get_indices(self, row_index: Index, col_index: Index, *batch_indices: Index) -> Tensor:
        entries: Tensor = RootLinearOperator(self.root)._get_indices(row_index, col_index, *batch_indices)
        return entries

    def _getitem(self, row_index: Index, col_index: Index, *batch_indices: Index) -> LinearOperator:
        part: Any = RootLinearOperator(self.root)._getitem(row_index, col_index, *batch_indices)
        return self.__class__(part.root.to_dense()) if isinstance(part, RootLinearOperator) else part

    def _mul_constant(self, other: Tensor) -> LinearOperator:
        if bool((other > 0).all()):
            return self.__class__(self.root * other.sqrt()[..., None, None])
        product: LinearOperator = super()._mul_constant(other)
        return product

    def to_dense(self) -> Tensor:
        return self.root @ self.root.mT

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        draws: Tensor = RootLinearOperator(self.root).zero_mean_mvn_samples(num_samples)
        return draws


class WeightSpaceCovariance(FunctionCovariance):
    r"""Posterior covariance :math:`F_* B^{-1} F_*^\top` of T outputs at N inputs, rows interleaved.

    Variances, products and samples form neither the (N T) x (N T) covariance nor the features of all rows.

    :param x: inputs, (..., N, d).
    :param features: takes (..., n, d) inputs and returns their real scalar features.
    """

    def __init__(
        self,
        x: Tensor,
        posterior: GaussianPosterior,
        factor: OutputFactor,
        features: Callable[[Tensor], Tensor],
    ) -> None:
        super().__init__(x)
        keep_arguments(self, posterior=posterior, factor=factor, features=features)
        self.x, self.posterior, self.factor, self.features = x, posterior, factor, features
        batch, own = x.shape[:-2], posterior.batch_shape
        self._batch = torch.broadcast_shapes(batch, own) if batch and own else batch or own

    @property
    def dtype(self) -> torch.dtype:
        return self.x.dtype

    def _rows(self) -> list[slice]:
        return row_chunks(self.x.shape[-2], self.factor.num_columns * self.factor.num_outputs)

    def _root_of(self, rows: slice) -> Tensor:
        """A root (..., n T, K) of the covariance of some rows with themselves, in float64."""
        return self.posterior.function_root(self.features(self.x[..., rows, :]), self.factor)

    def _root(self) -> Tensor:
        return torch.cat([self._root_of(rows) for rows in self._rows()], dim=-2)

    def _diagonal(self) -> Tensor:
        chunks = row_chunks(self.x.shape[-2], self.posterior.variance_width(self.factor))
        scalar = (self.features(self.x[..., rows, :]) for rows in chunks)
        parts = (self.posterior.function_variance(part, self.factor) for part in scalar)
        return joined(parts, self.x.shape[-2] * self.factor.num_outputs, dim=-1).to(self.dtype)

    def matmul(self, other: Any) -> Any:
        """The product with a matrix; gradients run through the posterior too."""
        return self._matmul(other) if isinstance(other, Tensor) else super().matmul(other)

    def _matmul(self, rhs: Tensor) -> Tensor:
        is_vector = rhs.dim() == 1
        columns = (rhs.unsqueeze(-1) if is_vector else rhs).double()
        outputs = self.factor.num_outputs
        slices = [(rows, slice(rows.start * outputs, rows.stop * outputs)) for rows in self._rows()]
        inner = sum(self._root_of(rows).mT @ columns[..., part, :] for rows, part in slices)
        result = torch.cat([self._root_of(rows) @ inner for rows, _ in slices], dim=-2).to(rhs.dtype)
        return result.squeeze(-1) if is_vector else result

    def _size(self) -> torch.Size:
        rows = self.x.shape[-2] * self.factor.num_outputs
        return torch.Size((*self._batch, rows, rows))

    def _transpose_nonbatch(self) -> WeightSpaceCovariance:
        return self

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        return self._known()._get_indices(row_index, col_index, *batch_indices)

    def _getitem(self, row_index: Index, col_index: Index, *batch_indices: Index) -> LinearOperator:
        source: Any = self._known() if batch_indices else super()
        result: LinearOperator = source._getitem(row_index, col_index, *batch_indices)
        return result

    def _expand_batch(self, batch_shape: torch.Size) -> LinearOperator:
        return self._known()._expand_batch(batch_shape) if batch_shape else self

    def _unsqueeze_batch(self, dim: int) -> LinearOperator:
        return RootCovariance(self._root().to(self.dtype).unsqueeze(dim))

    def _known(self) -> RootCovariance:
        """The same covariance with the root of all rows in memory."""
        return RootCovariance(self._root().to(self.dtype))

    def to_dense(self) -> Tensor:
        root = self._root()
        return (root @ root.mT).to(self.dtype)

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        weights = self.factor.scalar_weights(self.posterior.deviations(num_samples))
        parts = [self.features(self.x[..., rows, :]).double() @ weights.flatten(-2) for rows in self._rows()]
        draws = torch.cat(parts, dim=-2).unflatten(-1, weights.shape[-2:]).flatten(-3, -2)
        return draws.movedim(-1, 0).to(self.dtype)


class CovariancePlusResidual(CholeskyRoot, AddedDiagLinearOperator):
    """The sum of a posterior covariance and a diagonal of residual variances."""

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        covariance, residual = parts_of(self)
        draws: Tensor = covariance.zero_mean_mvn_samples(num_samples)
        return draws + residual.zero_mean_mvn_samples(num_samples)


def plus_residual(covariance: LinearOperator, residual: Tensor | None) -> LinearOperator:
    """Add the residual variances (..., N) of truncated features to the diagonal of a covariance (..., N, N)."""
    if residual is None:
        return covariance
    diagonal = DiagLinearOperator(residual.to(covariance.dtype).expand(covariance.shape[:-1]))
    return CovariancePlusResidual(covariance, diagonal)


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
