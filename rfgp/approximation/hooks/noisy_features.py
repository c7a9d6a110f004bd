"""Covariances of noisy observations, solved in weight space in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from linear_operator.operators import DiagLinearOperator, LinearOperator, SumLinearOperator
from torch import Tensor

from ...inference.posterior.covariance import CholeskyRoot
from ...inference.posterior.normal_equations import Group, NormalEquations, combined
from ...inference.posterior.posterior import GaussianPosterior, refined_mean
from ...inference.posterior.products import batched_gram, feature_product, transposed_product
from ...inference.sums.rows import Rows
from ...linalg import cholesky, dense_evidence, product_dtype, spaced_rows
from .operator_noise import OperatorNoise, operator_noise
from .output_features import OutputFeatures


class NoisyFeaturesLinearOperator(CholeskyRoot, SumLinearOperator):
    r"""The covariance :math:`F F^\top + S` of noisy observations, by its K x K (or, for K >= N, N x N) form.

    .. math:: (F F^\top + S)^{-1} r = S^{-1} (r - F m), \qquad m = B^{-1} F^\top S^{-1} r, \qquad
        B = I + F^\top S^{-1} F
    """

    @property
    def noise(self) -> OperatorNoise:
        """The noise of the observations."""
        noise = operator_noise(self.linear_ops[1], num_outputs(self.linear_ops[0]))
        if noise is None:
            raise ValueError(f"expected noise by rows, got {type(self.linear_ops[1]).__name__}")
        return noise

    def system(self, residuals: Tensor, observed: Tensor | None = None) -> NormalEquations:
        """The regression on the features of residuals (..., N T, S) in float64, zero where they are not observed."""
        (scalar, factor), noise = self.linear_ops[0].parts(), self.noise
        outputs, columns = factor.num_outputs, residuals.shape[-1]
        by_row = residuals.unflatten(-2, (-1, outputs)).flatten(-2)
        is_observed = None if observed is None else observed.unflatten(-1, (-1, outputs))
        dtype = product_dtype(scalar.dtype, noise.smallest, lambda: factor.largest_square(spaced_rows(scalar)))
        rows, precisions = noise.weigh(by_row, is_observed)
        groups = []
        for precision, (gram, cross) in zip(precisions, _products(scalar, rows, dtype), strict=True):
            if precision is not None:
                groups.append((Group(precision.to(cross.device), gram), cross.unflatten(-1, (outputs, columns))))
        zero = cross.new_zeros(())
        return NormalEquations(combined(groups, zero, zero), factor)

    def posterior(self, residuals: Tensor, observed: Tensor | None = None, tracks: bool = False) -> GaussianPosterior:
        """The posterior of the weights given residuals (..., N T) in float64, zero where they are not observed."""
        return self.system(residuals.unsqueeze(-1), observed).posterior(tracks)

    def fitted(self, weights: Tensor) -> Tensor:
        """The functions of weights (..., K, S) at the rows, (..., N T, S)."""
        scalar, factor = self.linear_ops[0].parts()
        by_output = factor.scalar_weights(weights)
        return feature_product(scalar, by_output.flatten(-2)).unflatten(-1, by_output.shape[-2:]).flatten(-3, -2)

    def _whitened(self, residuals: Tensor) -> Tensor:
        """The noise covariance solved against residuals (..., N T, S)."""
        by_row = residuals.unflatten(-2, (-1, self.noise.num_outputs))
        return self.noise.solve(by_row).flatten(-3, -2)

    def _features(self) -> Tensor:
        """The features of one output, in float64."""
        scalar, factor = self.linear_ops[0].parts()
        return factor.features(scalar.double())

    @property
    def _is_wide(self) -> bool:
        return self.noise.num_outputs == 1 and self.linear_ops[0].root.shape[-1] >= self.shape[-1]

    def _solve(self, rhs: Tensor, preconditioner: Any = None, num_tridiag: int | None = 0) -> Tensor:
        exact = rhs.double()
        if self._is_wide:
            features = self._features()
            dense = features @ features.mT + torch.diag_embed(self.noise.variances(self.shape[-1]))
            return torch.cholesky_solve(exact, cholesky(dense)).to(rhs.dtype)
        mean = self.system(exact).posterior(tracks=torch.is_grad_enabled()).mean
        return self._whitened(exact - self.fitted(mean)).to(rhs.dtype)

    def solve(self, right_tensor: Tensor, left_tensor: Tensor | None = None) -> Tensor:
        is_vector = right_tensor.dim() == 1
        result = self._solve(right_tensor.unsqueeze(-1) if is_vector else right_tensor)
        result = result.squeeze(-1) if is_vector else result
        return result if left_tensor is None else left_tensor @ result

    def inv_quad(self, inv_quad_rhs: Tensor, reduce_inv_quad: bool = True) -> Tensor:
        return self.inv_quad_logdet(inv_quad_rhs, False, reduce_inv_quad)[0]

    def inv_quad_logdet(
        self, inv_quad_rhs: Tensor | None = None, logdet: bool | None = False, reduce_inv_quad: bool | None = True
    ) -> tuple[Tensor, Tensor]:
        """The quadratic form, and the log determinant."""
        scalar, noise = self.linear_ops[0].parts()[0], self.noise
        num_rows = scalar.shape[-2]
        rhs = scalar.new_zeros(self.shape[-1], 1) if inv_quad_rhs is None else inv_quad_rhs
        exact = (rhs.unsqueeze(-1) if rhs.dim() == 1 else rhs).double()
        if self._is_wide:
            quadratic, log_det = dense_evidence(self._features(), noise.variances(num_rows), exact)
        else:
            system = self.system(exact.detach())
            posterior = system.posterior()
            mean = refined_mean(posterior, self._gradient(exact.detach()))
            residual = exact - self.fitted(mean)
            quadratic = (residual * self._whitened(residual)).sum(-2) + mean.square().sum(-2)
            log_det = system.log_determinant(posterior) + noise.log_determinant(num_rows)
        quadratic = quadratic.sum(-1) if reduce_inv_quad else quadratic
        empty = quadratic.new_zeros(())
        quadratic = (empty if inv_quad_rhs is None else quadratic).to(self.dtype)
        return quadratic, (log_det if logdet else empty).to(self.dtype)

    def _gradient(self, rhs: Tensor) -> Callable[[Tensor], Tensor]:
        """Half the derivative in the weights of minus the quadratic form, zero at their posterior mean."""
        scalar, factor = self.linear_ops[0].parts()

        def gradient(mean: Tensor) -> Tensor:
            white = self._whitened(rhs - self.fitted(mean)).unflatten(-2, (-1, factor.num_outputs))
            cross = transposed_product(scalar, white.flatten(-2)).unflatten(-1, white.shape[-2:])
            return factor.adjoint(cross) - mean

        return gradient

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        root = self.linear_ops[0].root
        shape = (*root.shape[:-2], root.shape[-1], num_samples)
        draws = root.matmul(torch.randn(shape, dtype=root.dtype, device=root.device))
        return draws.movedim(-1, 0) + self.linear_ops[1].zero_mean_mvn_samples(num_samples)

    def add_diagonal(self, diag: Tensor) -> LinearOperator:
        return self + self.linear_ops[0].diagonal_operator(diag)

    def _mul_constant(self, other: Tensor) -> LinearOperator:
        features, noise = (part._mul_constant(other) for part in self.linear_ops)
        return features + noise

    def __add__(self, other: Any) -> LinearOperator:
        if isinstance(other, DiagLinearOperator):
            features, noise = self.linear_ops
            total = noise + other
            if operator_noise(total, num_outputs(features)) is not None:
                return self.__class__(features, total)
        return SumLinearOperator(*self.linear_ops, other)


def num_outputs(covariance: Any) -> int:
    """The number T of outputs of the features of a covariance."""
    return covariance.root.coefficient.shape[-1] if isinstance(covariance.root, OutputFeatures) else 1


def _products(scalar: Tensor, rows: Rows, dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
    """The Gram matrix (..., n, n) and cross products (..., n, K) of every group."""
    if rows.groups is None:
        every = [None] if rows.weights is None else [weights.contiguous() for weights in rows.weights.unbind(-1)]
        return [batched_gram(scalar, rows.targets, weights, dtype) for weights in every]
    members = [rows.groups == group for group in range(rows.num_groups)]
    if len(members) == 1:
        return [batched_gram(scalar, rows.targets, None, dtype)]
    return [batched_gram(scalar[rows_of_group], rows.targets[rows_of_group], None, dtype) for rows_of_group in members]
