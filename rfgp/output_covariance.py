"""The posterior covariance of several outputs, whose features are made chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable

import torch
from linear_operator.operators import LinearOperator, RootLinearOperator
from torch import Tensor

from .kronecker import KroneckerPosterior
from .linalg import row_chunks
from .output_factor import OutputFactor
from .posterior import WeightPosterior


class OutputCovariance(LinearOperator):
    r"""Posterior covariance :math:`F_* B^{-1} F_*^\top` of T outputs at N inputs, rows interleaved.

    Neither the (N T) x (N T) covariance nor the features of all rows need to be in memory for variances, products and
    samples.

    :param x: inputs, (N, d).
    :param posterior: the posterior of the weights.
    :param factor: the factor of the outputs, in float64.
    :param features: takes (n, d) inputs and returns their scalar features.
    """

    def __init__(
        self,
        x: Tensor,
        posterior: WeightPosterior | KroneckerPosterior,
        factor: OutputFactor,
        features: Callable[[Tensor], Tensor],
    ) -> None:
        super().__init__(x, posterior=posterior, factor=factor, features=features)
        self.x, self.posterior, self.factor, self.features = x, posterior, factor, features

    @property
    def dtype(self) -> torch.dtype:
        return self.x.dtype

    def _rows(self) -> list[slice]:
        return row_chunks(self.x.shape[-2], self.factor.num_columns * self.factor.num_outputs)

    def _white(self, rows: slice) -> Tensor:
        """A root (n T, K) of the covariance of some rows with themselves, in float64."""
        scalar, root = self.features(self.x[rows]), self.factor.covariance_root
        if isinstance(self.posterior, KroneckerPosterior) and root is not None:
            return self.posterior.covariance_root(scalar, root)
        if isinstance(self.posterior, KroneckerPosterior):
            raise ValueError("expected the factor of a separable kernel, got another; predict without an operator")
        return self.posterior.covariance_root(self.factor.features(scalar.double()))

    def _diagonal(self) -> Tensor:
        root = self.factor.covariance_root
        if isinstance(self.posterior, KroneckerPosterior) and root is not None:
            chunks = row_chunks(self.x.shape[-2], self.factor.num_scalar)
            parts = [self.posterior.variance(self.features(self.x[rows]), root).flatten() for rows in chunks]
        else:
            parts = [self._white(rows).square().sum(-1) for rows in self._rows()]
        return torch.cat(parts).to(self.dtype)

    def _root(self) -> Tensor:
        return torch.cat([self._white(rows) for rows in self._rows()])

    def _matmul(self, rhs: Tensor) -> Tensor:
        is_vector = rhs.dim() == 1
        columns = (rhs.unsqueeze(-1) if is_vector else rhs).double()
        outputs = self.factor.num_outputs
        slices = [(rows, slice(rows.start * outputs, rows.stop * outputs)) for rows in self._rows()]
        inner = sum(self._white(rows).mT @ columns[..., part, :] for rows, part in slices)
        result = torch.cat([self._white(rows) @ inner for rows, _ in slices], dim=-2).to(rhs.dtype)
        return result.squeeze(-1) if is_vector else result

    def _size(self) -> torch.Size:
        rows = self.x.shape[-2] * self.factor.num_outputs
        return torch.Size((rows, rows))

    def _transpose_nonbatch(self) -> OutputCovariance:
        return self

    def _expand_batch(self, batch_shape: torch.Size) -> LinearOperator:
        root = self._root().to(self.dtype)
        return RootLinearOperator(root.expand(*batch_shape, *root.shape)) if batch_shape else self

    def _unsqueeze_batch(self, dim: int) -> LinearOperator:
        return RootLinearOperator(self._root().to(self.dtype).unsqueeze(dim))

    def to_dense(self) -> Tensor:
        root = self._root()
        return (root @ root.mT).to(self.dtype)

    def root_decomposition(self, method: str | None = None) -> RootLinearOperator:
        return RootLinearOperator(self._root().to(self.dtype))

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        weights = self.factor.scalar_weights(self.posterior.deviations(num_samples))
        parts = [self.features(self.x[rows]).double() @ weights.flatten(-2) for rows in self._rows()]
        draws = torch.cat(parts).unflatten(-1, weights.shape[-2:]).flatten(0, 1)
        return draws.movedim(-1, 0).to(self.dtype)
