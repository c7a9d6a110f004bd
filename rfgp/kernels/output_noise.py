"""Covariances of noisy observations of several outputs, solved by scalar Gram matrices in float64."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from linear_operator.operators import (
    ConstantDiagLinearOperator,
    ConstantMulLinearOperator,
    DiagLinearOperator,
    KroneckerProductDiagLinearOperator,
    KroneckerProductLinearOperator,
    LinearOperator,
    SumLinearOperator,
)
from torch import Tensor

from .. import linalg
from ..kronecker import KroneckerPosterior
from ..output_factor import OutputFactor
from ..output_system import OutputGroup, OutputSystem
from ..posterior import WeightPosterior, feature_product, refined_mean
from .output_features import OutputFeatures


class OutputNoise(NamedTuple):
    """The noise of T outputs: a covariance (T, T) of all rows, or else variances (N, T); float64."""

    covariance: Tensor | None
    variances: Tensor | None

    def solve(self, rows: Tensor) -> Tensor:
        """The noise covariance solved against rows (N, T, C)."""
        if self.variances is not None:
            return rows / self.variances.unsqueeze(-1)
        return torch.linalg.solve(self.covariance, rows)

    def log_determinant(self, num_rows: int) -> Tensor:
        """Logarithm of the determinant of the noise covariance of all rows."""
        if self.variances is not None:
            return self.variances.log().sum()
        return num_rows * torch.logdet(self._known)

    @property
    def smallest(self) -> float:
        """The smallest noise variance in any direction."""
        if self.variances is not None:
            return float(self.variances.detach().min())
        return float(torch.linalg.eigvalsh(self._known.detach()).min())

    @property
    def _known(self) -> Tensor:
        if self.covariance is None:
            raise ValueError("expected a covariance of the noise, got variances by row")
        return self.covariance

    def groups(
        self, scalar: Tensor, residuals: Tensor, observed: Tensor | None, dtype: torch.dtype
    ) -> list[OutputGroup]:
        """Rows by the precision of their outputs, from scalar features (N, n) and residuals (N, T).

        :param scalar: the scalar features.
        :param residuals: what is regressed, in float64, zero where it is not observed.
        :param observed: which residuals are, (N, T); all where it is None.
        :param dtype: the dtype of products inside a chunk of rows.
        """
        outputs = residuals.shape[-1]
        if self.variances is None and observed is None:
            return [OutputGroup(torch.linalg.inv(self._known), *linalg.gram(scalar, residuals, None, dtype))]
        variances = self.variances
        if variances is None and not bool((self._known - torch.diag(self._known.diagonal())).any()):
            variances = self._known.diagonal().expand_as(residuals)
        if variances is not None:
            precisions = 1.0 / variances
            weights = precisions if observed is None else torch.where(observed, precisions, 0.0)
            units = torch.eye(outputs, dtype=residuals.dtype, device=residuals.device)
            return [
                OutputGroup(torch.outer(unit, unit), *linalg.gram(scalar, residuals, weight.contiguous(), dtype))
                for unit, weight in zip(units, weights.mT, strict=True)
            ]
        groups = []
        known = torch.ones_like(residuals, dtype=torch.bool) if observed is None else observed
        patterns, numbers = known.unique(dim=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            mine = numbers == number
            selection = torch.eye(outputs, dtype=residuals.dtype, device=residuals.device)[pattern]
            precision = selection.mT @ torch.linalg.inv(selection @ self._known @ selection.mT) @ selection
            groups.append(OutputGroup(precision, *linalg.gram(scalar[mine], residuals[mine], None, dtype)))
        return groups


def output_noise(noise: LinearOperator, num_outputs: int) -> OutputNoise | None:
    """The noise that an operator of interleaved rows stands for, or None where it is of another kind."""
    if noise.batch_shape:
        return None
    if isinstance(noise, ConstantMulLinearOperator):
        known, factor = output_noise(noise.base_linear_op, num_outputs), noise._constant.double()
        return None if known is None else OutputNoise(*[None if part is None else factor * part for part in known])
    if isinstance(noise, ConstantDiagLinearOperator):
        return OutputNoise(noise.diag_values.double() * _identity(noise, num_outputs), None)
    is_kronecker = isinstance(noise, KroneckerProductDiagLinearOperator | KroneckerProductLinearOperator)
    if is_kronecker and len(noise.linear_ops) == 2 and noise.linear_ops[1].shape[-1] == num_outputs:
        rows, outputs = noise.linear_ops
        if isinstance(rows, ConstantDiagLinearOperator):
            return OutputNoise(rows.diag_values.double() * outputs.to_dense().double(), None)
    if isinstance(noise, DiagLinearOperator):
        return OutputNoise(None, noise._diag.double().unflatten(-1, (-1, num_outputs)))
    return None


def _identity(noise: LinearOperator, size: int) -> Tensor:
    return torch.eye(size, dtype=torch.float64, device=noise.device)


class OutputPlusNoiseLinearOperator(SumLinearOperator):
    r"""The covariance :math:`F F^\top + I \otimes \Sigma` of noisy observations of several outputs.

    :param linear_op: the covariance of the outputs, a FeatureLinearOperator of OutputFeatures.
    :param noise: an operator that :func:`output_noise` knows.
    """

    @property
    def _features(self) -> OutputFeatures:
        return self.linear_ops[0].root

    @property
    def noise(self) -> OutputNoise:
        """The noise of the outputs."""
        found = output_noise(self.linear_ops[1], self._features.coefficient.shape[-1])
        if found is None:
            raise ValueError(f"expected noise by rows, got {type(self.linear_ops[1]).__name__}")
        return found

    def system(self, residuals: Tensor, observed: Tensor | None = None) -> OutputSystem:
        """The regression of residuals (N, T) on the features.

        :param residuals: float64, zero where not observed.
        :param observed: which are, (N, T); all where it is None.
        """
        noise, scalar = self.noise, self._features.scalar
        dtype = linalg.product_dtype(
            scalar.dtype, noise.smallest, lambda: self._factor.largest_square(linalg.sample_rows(scalar))
        )
        return OutputSystem(noise.groups(scalar, residuals, observed, dtype), self._factor)

    @property
    def _factor(self) -> OutputFactor:
        return self._features.factor.double()

    def posterior(
        self, residuals: Tensor, observed: Tensor | None = None, tracks: bool = False
    ) -> WeightPosterior | KroneckerPosterior:
        """The posterior of the weights given residuals (N T,), zero where they are not observed."""
        shape = (-1, self._factor.num_outputs)
        known = None if observed is None else observed.reshape(shape)
        return self.system(residuals.reshape(shape), known).posterior(tracks)

    def _by_row(self, rhs: Tensor) -> Tensor:
        return rhs.unflatten(-2, (-1, self._factor.num_outputs))

    def _solve(self, rhs: Tensor, preconditioner: Any = None, num_tridiag: int | None = 0) -> Tensor:
        exact, noise, features = rhs.double(), self.noise, self._features
        exact_features = OutputFeatures.of(features.scalar.double(), self._factor)
        nothing = exact.new_zeros(len(features.scalar), self._factor.num_outputs)
        factor = linalg.cholesky(self.system(nothing).matrix)
        white = noise.solve(self._by_row(exact)).flatten(-3, -2)
        mean = torch.cholesky_solve(exact_features._t_matmul(white), factor)
        residual = exact - exact_features._matmul(mean)
        return noise.solve(self._by_row(residual)).flatten(-3, -2).to(rhs.dtype)

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
        """The quadratic form, a sum of positive terms that is stationary in the weights, and the log determinant."""
        noise, factor, scalar = self.noise, self._factor, self._features.scalar
        empty = scalar.new_zeros(())
        num_rows, outputs = scalar.shape[-2], factor.num_outputs
        shape = (num_rows * outputs, 1)
        rhs = scalar.new_zeros(shape) if inv_quad_rhs is None else inv_quad_rhs
        columns = (rhs.unsqueeze(-1) if rhs.dim() == 1 else rhs).double()
        quadratics = []
        for column in columns.unbind(-1) if inv_quad_rhs is not None else ():
            rows = column.reshape(num_rows, outputs)
            mean = refined_mean(
                self.system(rows.detach()).posterior(), functools.partial(self._gradient, rows.detach())
            )
            residual = rows - feature_product(scalar, factor.scalar_weights(mean).squeeze(-1))
            solved = noise.solve(residual.unsqueeze(-1)).squeeze(-1)
            quadratics.append((residual * solved).sum() + mean.square().sum())
        quadratic = torch.stack(quadratics) if quadratics else empty.unsqueeze(-1)
        quadratic = quadratic.sum(-1) if reduce_inv_quad else quadratic
        if not logdet:
            return quadratic.to(self.dtype), empty
        nothing = torch.zeros(num_rows, outputs, dtype=torch.float64, device=scalar.device)
        log_det = self.system(nothing).log_determinant() + noise.log_determinant(num_rows)
        return quadratic.to(self.dtype), log_det.to(self.dtype)

    def _gradient(self, rows: Tensor, mean: Tensor) -> Tensor:
        """Half the derivative in the weights of minus the quadratic form, zero at their posterior mean."""
        fitted = feature_product(self._features.scalar, self._factor.scalar_weights(mean).squeeze(-1))
        return self.system(rows - fitted).cross - mean

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        features = self._features
        shape = (features.shape[-1], num_samples)
        weights = torch.randn(shape, dtype=features.dtype, device=features.device)
        return (features._matmul(weights)).mT + self.linear_ops[1].zero_mean_mvn_samples(num_samples)

    def _mul_constant(self, other: Tensor) -> LinearOperator:
        features, noise = (part._mul_constant(other) for part in self.linear_ops)
        return features + noise

    def __add__(self, other: Any) -> LinearOperator:
        return SumLinearOperator(*self.linear_ops, other)
