"""The Gaussian posterior of the weights of a feature model, real or complex, from its sufficient statistics."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import torch
from linear_operator.operators import AddedDiagLinearOperator, DiagLinearOperator, LinearOperator, RootLinearOperator
from torch import Tensor

from .linalg import accurate_dtype, cholesky, cholesky_, gram, is_ill_conditioned, log_determinant, row_chunks


class WeightPosterior:
    r"""Posterior :math:`N(m, B^{-1})` of weights w with prior N(0, I), observed through features with Gaussian noise.

    .. math:: B = I + \Phi^H S^{-1} \Phi = L L^H, \qquad m = B^{-1} \Phi^H S^{-1} y

    The function :math:`f(x) = \phi(x) w` then has mean :math:`\Phi_* m` and covariance
    :math:`\Phi_* B^{-1} \Phi_*^H = (\Phi_* L^{-H}) (\Phi_* L^{-H})^H`. Complex features give a proper complex
    posterior.

    :param grams: pairs of coefficients and (..., D, D) matrices whose sum is :math:`\Phi^H S^{-1} \Phi`, in float64 or
        complex128; or that sum itself.
    :param cross: :math:`\Phi^H S^{-1} y`, (..., D, K).
    :raises ValueError: where B is not positive definite to working precision.

    Source: T Eq. B.18 to B.20.

    >>> posterior = WeightPosterior(torch.eye(2, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64))
    >>> posterior.mean
    tensor([[0.5000],
            [0.5000]], dtype=torch.float64)
    """

    def __init__(self, grams: Tensor | Sequence[tuple[Tensor | float, Tensor]], cross: Tensor) -> None:
        self.factor = cholesky(precision_matrix([(1.0, grams)] if isinstance(grams, Tensor) else grams))
        dtype = torch.promote_types(self.factor.dtype, cross.dtype)
        self.mean = torch.cholesky_solve(cross.to(dtype), self.factor.to(dtype))

    @classmethod
    def stacked(cls, systems: Iterable[tuple[list[tuple[Tensor, Tensor]], Tensor]], count: int) -> Self:
        """A batch of posteriors, from systems that are made one at a time.

        Without gradients one matrix of working memory serves all of them beside the factors.

        :param systems: the arguments of each posterior.
        :param count: how many there are.
        """
        result = object.__new__(cls)
        if torch.is_grad_enabled():
            parts = [cls(*system) for system in systems]
            result.factor = torch.stack([part.factor for part in parts])
            result.mean = torch.stack([part.mean for part in parts])
            return result
        means = []
        for index, (grams, cross) in enumerate(systems):
            if index == 0:
                work = torch.empty_like(grams[0][1])
                result.factor = work.new_empty(count, *work.shape).mT
            for term, (coefficient, matrix) in enumerate(grams):
                if term == 0:
                    torch.mul(matrix, coefficient, out=work)
                else:
                    work.add_(matrix, alpha=float(coefficient))
            work.diagonal().add_(1.0)
            means.append(torch.cholesky_solve(cross, cholesky_(work, result.factor[index])))
        result.mean = torch.stack(means)
        return result

    @property
    def log_determinant(self) -> Tensor:
        """log|B|, shape (...)."""
        return log_determinant(self.factor)

    def solve(self, rhs: Tensor) -> Tensor:
        """B^-1 times columns (..., D, K)."""
        return torch.cholesky_solve(rhs, self.factor.to(rhs.dtype))

    @property
    def is_ill_conditioned(self) -> bool:
        """Whether rounding may cost the mean more than half of its digits."""
        return is_ill_conditioned(torch.linalg.vector_norm(self.factor, dim=-1).square())

    def covariance_root(self, features: Tensor) -> Tensor:
        r"""The root :math:`\Phi_* L^{-H}` of the posterior covariance of the function, (..., N, D).

        :param features: (..., N, D).
        """
        features = features.to(self.factor.dtype)
        return torch.linalg.solve_triangular(self.factor, features.mH, upper=False).mH

    def detach(self) -> WeightPosterior:
        """The same posterior without its autograd graph."""
        detached = object.__new__(type(self))
        detached.factor, detached.mean = self.factor.detach(), self.mean.detach()
        return detached

    def deviations(self, num_samples: int) -> Tensor:
        """Draws of the weights minus their mean, (..., D, num_samples); circular complex ones for complex features.

        :param num_samples: the number of draws.
        """
        shape = (*self.factor.shape[:-1], num_samples)
        noise = torch.randn(shape, dtype=self.factor.dtype, device=self.factor.device)
        return torch.linalg.solve_triangular(self.factor.mH, noise, upper=True)


def precision_matrix(grams: Sequence[tuple[Tensor | float, Tensor]]) -> Tensor:
    r"""The matrix :math:`B = I + \sum_k c_k G_k`, (..., D, D).

    :param grams: pairs of coefficients and (..., D, D) matrices.
    """
    precision = functools.reduce(torch.add, [coefficient * matrix for coefficient, matrix in grams])
    precision.diagonal(dim1=-2, dim2=-1).add_(1.0)
    return precision


def batched_gram(
    features: Tensor, targets: Tensor, weights: Tensor | None = None, product_dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """:func:`rfgp.linalg.gram` with leading batch dimensions that broadcast.

    :param features: (..., N, D).
    :param targets: (..., N, K).
    :param weights: (..., N); ones where it is None.
    :param product_dtype: the dtype of the products inside a chunk of rows.
    :returns: the (..., D, D) Gram matrices and (..., D, K) cross products; a batch of targets alone shares one Gram
        matrix, without batch dimensions.
    """
    weights_batch = torch.Size() if weights is None else weights.shape[:-1]
    shared = torch.broadcast_shapes(features.shape[:-2], weights_batch)
    if not shared:
        batch, (num_rows, columns) = targets.shape[:-2], targets.shape[-2:]
        flat = targets.reshape(-1, num_rows, columns).permute(1, 0, 2).reshape(num_rows, -1)
        product, cross = gram(features.reshape(features.shape[-2:]), flat, weights, product_dtype)
        return product, cross.reshape(len(cross), *batch, columns).movedim(0, -2)
    batch = torch.broadcast_shapes(shared, targets.shape[:-2])
    all_features = features.expand(*batch, *features.shape[-2:]).reshape(-1, *features.shape[-2:])
    all_targets = targets.expand(*batch, *targets.shape[-2:]).reshape(-1, *targets.shape[-2:])
    all_weights = (
        [None] * len(all_features)
        if weights is None
        else weights.expand(*batch, weights.shape[-1]).reshape(-1, weights.shape[-1])
    )
    pairs = [gram(f, t, w, product_dtype) for f, t, w in zip(all_features, all_targets, all_weights, strict=True)]
    grams, crosses = (torch.stack(parts) for parts in zip(*pairs, strict=True))
    return grams.reshape(*batch, *grams.shape[1:]), crosses.reshape(*batch, *crosses.shape[1:])


def feature_product(features: Tensor, weights: Tensor) -> Tensor:
    """Product of features with weights in float64, without a float64 copy of all the features.

    :param features: (..., N, D).
    :param weights: (..., D, K), float64 or complex128.
    :returns: (..., N, K).
    """
    dtype = torch.promote_types(accurate_dtype(features.dtype), weights.dtype)
    exact = weights.to(dtype)
    chunks = row_chunks(features.shape[-2], features.shape[-1], dtype.itemsize)
    return torch.cat([features[..., rows, :].to(dtype) @ exact for rows in chunks], dim=-2)


def transposed_product(features: Tensor, values: Tensor) -> Tensor:
    """Product of the adjoint of features with values, as :func:`feature_product` takes it.

    :param features: (..., N, D).
    :param values: (..., N, K), float64 or complex128.
    :returns: (..., D, K).
    """
    dtype = torch.promote_types(accurate_dtype(features.dtype), values.dtype)
    chunks = row_chunks(features.shape[-2], features.shape[-1], dtype.itemsize)
    parts = [features[..., rows, :].mH.to(dtype) @ values[..., rows, :].to(dtype) for rows in chunks]
    return functools.reduce(torch.add, parts)


@torch.no_grad()
def refined_mean(posterior: Any, gradient: Callable[[Tensor], Tensor]) -> Tensor:
    r"""The mean m after one step of iterative refinement where B is ill-conditioned.

    :param posterior: a :class:`WeightPosterior`, or a KroneckerPosterior.
    :param gradient: takes m and returns :math:`\Phi^H S^{-1} (y - \Phi m) - m`, from the rows and not from their sums.
    """
    mean: Tensor = posterior.mean.detach()
    return mean + posterior.solve(gradient(mean)) if posterior.is_ill_conditioned else mean


class WeightSpaceCovariance(LinearOperator):
    r"""Posterior covariance :math:`\Phi_* B^{-1} \Phi_*^\top` at inputs whose features are made chunk by chunk.

    Neither the N x N covariance nor all the features need to be in memory for variances, products and samples.

    :param x: inputs, (..., N, d).
    :param factor: the Cholesky factor of B, (..., D, D).
    :param scale: the factor a of the features, (..., 1, 1), in float64.
    :param features: takes (..., n, d) inputs and returns their real features (..., n, D).
    """

    def __init__(self, x: Tensor, factor: Tensor, scale: Tensor, features: Callable[[Tensor], Tensor]) -> None:
        super().__init__(x, factor, scale, features=features)
        self.x, self.factor, self.scale, self.features = x, factor, scale, features

    @property
    def dtype(self) -> torch.dtype:
        return self.x.dtype

    def _chunks(self) -> list[Tensor]:
        return [self.x[..., rows, :] for rows in row_chunks(self.x.shape[-2], self.factor.shape[-1])]

    def _white(self, x: Tensor) -> Tensor:
        """a L^-1 Phi^T, (..., D, n), in float64; one batch element at a time where factors are batched."""
        features = self.features(x).double().mT
        if self.factor.dim() == 2 or features.dim() > 2:
            return self.scale * torch.linalg.solve_triangular(self.factor, features, upper=False)
        parts = [torch.linalg.solve_triangular(f, features, upper=False) for f in self.factor.flatten(0, -3)]
        return self.scale * torch.stack(parts).unflatten(0, self.factor.shape[:-2])

    def _diagonal(self) -> Tensor:
        chunks = [self._white(x).square().sum(-2) for x in self._chunks()]
        return torch.cat(chunks, dim=-1).to(self.dtype)

    def _root(self) -> Tensor:
        return torch.cat([self._white(x).mT for x in self._chunks()], dim=-2)

    def _matmul(self, rhs: Tensor) -> Tensor:
        is_vector = rhs.dim() == 1
        columns = (rhs.unsqueeze(-1) if is_vector else rhs).double()
        rows = row_chunks(self.x.shape[-2], self.factor.shape[-1])
        inner = sum(self._white(self.x[..., part, :]) @ columns[..., part, :] for part in rows)
        result = torch.cat([self._white(x).mT @ inner for x in self._chunks()], dim=-2).to(rhs.dtype)
        return result.squeeze(-1) if is_vector else result

    def _size(self) -> torch.Size:
        batch = torch.broadcast_shapes(self.x.shape[:-2], self.factor.shape[:-2])
        return torch.Size((*batch, self.x.shape[-2], self.x.shape[-2]))

    def _transpose_nonbatch(self) -> WeightSpaceCovariance:
        return self

    def _expand_batch(self, batch_shape: torch.Size) -> WeightSpaceCovariance:
        factor = self.factor.expand(*batch_shape, *self.factor.shape[-2:])
        return self.__class__(self.x, factor, self.scale, self.features)

    def to_dense(self) -> Tensor:
        root = self._root()
        return (root @ root.mT).to(self.dtype)

    def root_decomposition(self, method: str | None = None) -> RootLinearOperator:
        return RootLinearOperator(self._root().to(self.dtype))

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        noise = torch.randn(*self.factor.shape[:-1], num_samples, dtype=self.factor.dtype, device=self.factor.device)
        weights = self.scale * torch.linalg.solve_triangular(self.factor.mT, noise, upper=True)
        draws = torch.cat([self.features(x).double() @ weights for x in self._chunks()], dim=-2)
        return draws.movedim(-1, 0).to(self.dtype)


class CovariancePlusResidual(AddedDiagLinearOperator):
    """A posterior covariance and independent variances of the points, whose samples are those of the two together.

    :param covariance: the posterior covariance of the features.
    :param residual: a DiagLinearOperator of what the features lack.
    """

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        return self._linear_op.zero_mean_mvn_samples(num_samples) + self._diag_tensor.zero_mean_mvn_samples(num_samples)


def plus_residual(covariance: LinearOperator, residual: Tensor | None) -> LinearOperator:
    """A posterior covariance with the variance that truncated features lack on its diagonal.

    :param covariance: (..., N, N).
    :param residual: broadcasts to (..., N); None where nothing is added.
    """
    if residual is None:
        return covariance
    diagonal = DiagLinearOperator(residual.to(covariance.dtype).expand(covariance.shape[:-1]))
    return CovariancePlusResidual(covariance, diagonal)
