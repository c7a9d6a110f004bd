"""The features of many outputs as a linear operator that is never formed."""

from __future__ import annotations

import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

from ...inference import OutputFactor


class OutputFeatures(LinearOperator):
    r"""The matrix (N T) x K of features of T outputs at N inputs, with products at O(N n T); B 5.4, Eq. 29 and 30.

    .. math:: F_{(i, t), k} = \sum_l \psi(x_i)_{j_{lk}}\, c_{lkt}

    Scalar features are (..., N, n); coefficients (..., L, K, T) and columns (L, K) are those of an OutputFactor.
    """

    def __init__(self, scalar: Tensor, coefficient: Tensor, index: Tensor, is_kronecker: bool = False) -> None:
        super().__init__(scalar, coefficient, index=index, is_kronecker=is_kronecker)
        self.scalar, self.coefficient, self.index, self.is_kronecker = scalar, coefficient, index, is_kronecker

    @classmethod
    def of(cls, scalar: Tensor, factor: OutputFactor) -> OutputFeatures:
        """The operator of scalar features and an output factor."""
        is_kronecker = factor.covariance_root is not None
        return cls(scalar, factor.coefficient.to(scalar.dtype), factor.index, is_kronecker)

    @property
    def factor(self) -> OutputFactor:
        """The output factor, with the coefficients in the dtype of the features."""
        rank = self.index.shape[-1] // self.scalar.shape[-1]
        root = self.coefficient[..., 0, :rank, :].mT if self.is_kronecker else None
        return OutputFactor(self.index, self.coefficient, self.scalar.shape[-1], root)

    def matvec(self, weights: Tensor) -> Tensor:
        """The product F v, (..., K) to (..., N T)."""
        return self._matmul(weights.unsqueeze(-1)).squeeze(-1)

    def rmatvec(self, values: Tensor) -> Tensor:
        """The product F^T v, (..., N T) to (..., K)."""
        return self._t_matmul(values.unsqueeze(-1)).squeeze(-1)

    def squared_norms(self) -> Tensor:
        """The squared norms of the rows, (..., N T): the prior variances of all outputs."""
        return self.factor.prior_variances(self.scalar).flatten(-2)

    @property
    def dtype(self) -> torch.dtype:
        return self.scalar.dtype

    def _matmul(self, rhs: Tensor) -> Tensor:
        is_vector = rhs.dim() == 1
        weights = self.factor.scalar_weights(rhs.unsqueeze(-1) if is_vector else rhs)
        product = self.scalar @ weights.flatten(-2)
        result = product.unflatten(-1, weights.shape[-2:]).flatten(-3, -2)
        return result.squeeze(-1) if is_vector else result

    def _t_matmul(self, rhs: Tensor) -> Tensor:
        is_vector = rhs.dim() == 1
        columns = rhs.unsqueeze(-1) if is_vector else rhs
        outputs = self.coefficient.shape[-1]
        by_row = columns.unflatten(-2, (-1, outputs))
        cross = (self.scalar.mT @ by_row.flatten(-2)).unflatten(-1, by_row.shape[-2:])
        result = self.factor.adjoint(cross)
        return result.squeeze(-1) if is_vector else result

    def _size(self) -> torch.Size:
        batch = torch.broadcast_shapes(self.scalar.shape[:-2], self.coefficient.shape[:-3])
        rows = self.scalar.shape[-2] * self.coefficient.shape[-1]
        return torch.Size((*batch, rows, self.index.shape[-1]))

    def _transpose_nonbatch(self) -> LinearOperator:
        return _Transposed(self)

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        point, output = row_index // self.coefficient.shape[-1], row_index % self.coefficient.shape[-1]
        batch = self._size()[:-2]
        scalar = self.scalar.expand(*batch, *self.scalar.shape[-2:])
        coefficients = self.coefficient.expand(*batch, *self.coefficient.shape[-3:]).unbind(-3)
        parts = [
            scalar[(*batch_indices, point, index[col_index])] * c[(*batch_indices, col_index, output)]
            for index, c in zip(self.index, coefficients, strict=True)
        ]
        return sum(parts[1:], parts[0])

    def _expand_batch(self, batch_shape: torch.Size) -> OutputFeatures:
        scalar = self.scalar.expand(*batch_shape, *self.scalar.shape[-2:])
        return self.__class__(scalar, self.coefficient, self.index, self.is_kronecker)

    def to_dense(self) -> Tensor:
        dense = self.factor.features(self.scalar)
        return dense.expand(*self._size()[:-2], *dense.shape[-2:])


class _Transposed(LinearOperator):
    """The transpose of :class:`OutputFeatures`."""

    def __init__(self, features: OutputFeatures) -> None:
        super().__init__(features)
        self.features = features

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.features._t_matmul(rhs)

    def _t_matmul(self, rhs: Tensor) -> Tensor:
        return self.features._matmul(rhs)

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        return self.features._get_indices(col_index, row_index, *batch_indices)

    def _size(self) -> torch.Size:
        *batch, rows, columns = self.features.shape
        return torch.Size((*batch, columns, rows))

    def _transpose_nonbatch(self) -> LinearOperator:
        return self.features

    def to_dense(self) -> Tensor:
        return self.features.to_dense().mT
