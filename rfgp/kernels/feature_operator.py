"""Kernel matrices that know their features, and keep D x D work in float64 when noise is added."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from linear_operator.operators import (
    AddedDiagLinearOperator,
    ConstantDiagLinearOperator,
    DiagLinearOperator,
    LinearOperator,
    LowRankRootLinearOperator,
    MatmulLinearOperator,
)
from torch import Tensor

from .. import linalg
from ..posterior import WeightPosterior, batched_gram, feature_product, refined_mean, transposed_product
from .output_features import OutputFeatures
from .output_noise import OutputPlusNoiseLinearOperator, output_noise


def _is_scales(value: Any) -> bool:
    """Whether a factor is a batch of constants, which GPyTorch multiplies densely where the operator has no batch."""
    return isinstance(value, Tensor) and value.numel() > 1 and value.shape[-2:] == (1, 1)


def _scaled(features: LinearOperator, scale: Tensor) -> Tensor | LinearOperator:
    """Features times (a batch of) numbers; those of many outputs keep their structure."""
    if isinstance(features, OutputFeatures):
        return OutputFeatures.of(features.scalar, features.factor.scaled(scale))
    return features.to_dense() * scale[..., None, None]


def _scaled_residual(operator: FeatureLinearOperator, scale: Tensor) -> Tensor | None:
    residual = operator.residual_variance()
    return None if residual is None else scale.unsqueeze(-1) * residual


class FeatureLinearOperator(LowRankRootLinearOperator):
    r"""The kernel matrix :math:`\Phi \Phi^\top` of real features, whose sum with a diagonal is solved in float64.

    :param root: the features, (..., N, D).
    :param residual: makes the variance (..., N) that the features lack of the kernel's, or None for nothing, where
        predictions ask for it. Scaling keeps it; parts of the matrix do not have it.
    """

    def __init__(self, root: Tensor | LinearOperator, residual: Callable[[], Tensor | None] | None = None) -> None:
        super().__init__(root)
        self._residual = residual

    def evaluate_kernel(self) -> FeatureLinearOperator:
        """The operator itself, in which nothing is lazy."""
        return self

    def residual_variance(self) -> Tensor | None:
        """The variance that the features lack, (..., N); None for nothing. It is no part of the matrix."""
        return None if self._residual is None else self._residual()

    def mul(self, other: Any) -> LinearOperator:
        return self._mul_constant(other[..., 0, 0]) if _is_scales(other) else super().mul(other)

    def _mul_constant(self, other: Tensor) -> LinearOperator:
        if bool((other < 0).any()):
            return super()._mul_constant(other)
        residual = functools.partial(_scaled_residual, self, other)
        return self.__class__(_scaled(self.root, other.sqrt()), residual)

    def add_diagonal(self, diag: Tensor) -> LinearOperator:
        if diag.dim() == 0 or diag.shape[-1] == 1:
            return self + ConstantDiagLinearOperator(diag.reshape(*diag.shape[:-1], 1), diag_shape=self.shape[-1])
        return self + DiagLinearOperator(diag.expand(torch.broadcast_shapes(diag.shape, self.shape[:-1])))

    def __add__(self, other: Any) -> LinearOperator:
        root = self.root
        is_many = isinstance(root, OutputFeatures) and isinstance(other, LinearOperator) and not self.batch_shape
        if is_many and output_noise(other, root.coefficient.shape[-1]) is not None:
            return OutputPlusNoiseLinearOperator(self, other)
        if isinstance(other, DiagLinearOperator):
            return FeaturePlusDiagLinearOperator(self, other)
        return super().__add__(other)


class FeatureCrossLinearOperator(MatmulLinearOperator):
    r"""The kernel matrix :math:`\Phi_1 \Phi_2^\top` between two sets of inputs, closed under (batched) scaling.

    :param left_linear_op: the features of the first inputs, (..., N, D).
    :param right_linear_op: the transposed features of the second inputs, (..., D, M).
    """

    def mul(self, other: Any) -> LinearOperator:
        return self._mul_constant(other[..., 0, 0]) if _is_scales(other) else super().mul(other)

    def _mul_constant(self, other: Tensor) -> LinearOperator:
        return self.__class__(_scaled(self.left_linear_op, other), self.right_linear_op)


class FeaturePlusDiagLinearOperator(AddedDiagLinearOperator):
    r"""The covariance :math:`\Phi \Phi^\top + S` of noisy observations, by its D x D (or, for D >= N, N x N) form.

    .. math:: (\Phi \Phi^\top + S)^{-1} r = S^{-1} (r - \Phi m), \qquad m = B^{-1} \Phi^\top S^{-1} r, \qquad
        B = I + \Phi^\top S^{-1} \Phi

    The quadratic form is taken as :math:`(r - \Phi m)^\top S^{-1} (r - \Phi m) + m^\top m`, a sum of positive terms
    that is stationary in m: nothing cancels, and its gradient needs no derivative of m.
    """

    @property
    def _features(self) -> Tensor:
        return self._linear_op.root.to_dense()

    @property
    def _noise_variances(self) -> Tensor:
        """(..., 1) for constant noise, else (..., N), in float64."""
        if isinstance(self._diag_tensor, ConstantDiagLinearOperator):
            return self._diag_tensor.diag_values.double()
        return self._diag_tensor._diag.double()

    def _posterior(self, rhs: Tensor, weights: Tensor | None = None) -> WeightPosterior:
        """Posterior of the weights given observations ``rhs`` (..., N, K) with precisions ``weights`` (..., N)."""
        features, noise = self._features, self._noise_variances
        dtype = linalg.product_dtype(
            features.dtype,
            float(noise.detach().min()),
            lambda: linalg.largest_square(linalg.sample_rows(features)),
        )
        if weights is None and noise.shape[-1] == 1:
            product, cross = batched_gram(features, rhs, product_dtype=dtype)
            return WeightPosterior(product / noise[..., None], cross / noise[..., None])
        precision = 1.0 / noise.expand(*noise.shape[:-1], features.shape[-2]) if weights is None else weights
        return WeightPosterior(*batched_gram(features, rhs, precision, dtype))

    @property
    def _row_noise(self) -> Tensor:
        """(..., N), in float64."""
        noise = self._noise_variances
        return noise.expand(*noise.shape[:-1], self.shape[-1])

    def _dense_factor(self) -> Tensor:
        features = self._features.double()
        return linalg.cholesky(features @ features.mT + torch.diag_embed(self._row_noise))

    @property
    def _is_wide(self) -> bool:
        return self._linear_op.root.shape[-1] >= self.shape[-1]

    def _solve(self, rhs: Tensor, preconditioner: Any = None, num_tridiag: int | None = 0) -> Tensor:
        exact = rhs.double()
        if self._is_wide:
            return torch.cholesky_solve(exact, self._dense_factor()).to(rhs.dtype)
        residual = exact - feature_product(self._features, self._posterior(exact).mean)
        return (residual / self._noise_variances[..., None]).to(rhs.dtype)

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
        dtype = self.dtype
        num_rows = self.shape[-1]
        rhs = self._features.new_zeros(num_rows, 1) if inv_quad_rhs is None else inv_quad_rhs
        exact = (rhs.unsqueeze(-1) if rhs.dim() == 1 else rhs).double()
        if self._is_wide:
            quadratic, log_det = linalg.dense_evidence(self._features.double(), self._row_noise, exact)
        else:
            posterior = self._posterior(exact.detach())
            features, noise = self._features, self._noise_variances
            mean = refined_mean(
                posterior,
                lambda m: transposed_product(features, (exact - feature_product(features, m)) / noise[..., None]) - m,
            )
            residual = exact - feature_product(features, mean)
            quadratic = (residual.square() / noise[..., None]).sum(-2) + mean.square().sum(-2)
            log_det = posterior.log_determinant + noise.log().sum(-1) * (num_rows // noise.shape[-1])
        quadratic = quadratic.sum(-1) if reduce_inv_quad else quadratic
        empty = quadratic.new_zeros(())
        quadratic = (empty if inv_quad_rhs is None else quadratic).to(dtype)
        return quadratic, (log_det if logdet else empty).to(dtype)

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        features, noise = self._features, self._diag_tensor._diag
        latent = features @ torch.randn(
            *features.shape[:-2], features.shape[-1], num_samples, dtype=features.dtype, device=features.device
        )
        shape = (*self.shape[:-1], num_samples)
        draws = latent + noise.sqrt()[..., None] * torch.randn(shape, dtype=features.dtype, device=features.device)
        return draws.movedim(-1, 0)

    def add_diagonal(self, diag: Tensor) -> LinearOperator:
        return self.__class__(self._linear_op, self._diag_tensor.add_diagonal(diag))

    def _mul_constant(self, other: Tensor) -> LinearOperator:
        if bool((other < 0).any()):
            return super()._mul_constant(other)
        return self.__class__(self._linear_op._mul_constant(other), self._diag_tensor._mul_constant(other))

    def __add__(self, other: Any) -> LinearOperator:
        if isinstance(other, DiagLinearOperator):
            return self.__class__(self._linear_op, self._diag_tensor + other)
        return AddedDiagLinearOperator(self._linear_op + other, self._diag_tensor)
