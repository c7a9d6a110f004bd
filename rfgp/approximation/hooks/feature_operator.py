"""Kernel matrices that know their features, and keep D x D work in float64 when noise is added."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from linear_operator import to_linear_operator
from linear_operator.operators import (
    ConstantDiagLinearOperator,
    DenseLinearOperator,
    DiagLinearOperator,
    KroneckerProductLinearOperator,
    LinearOperator,
    LowRankRootLinearOperator,
    MatmulLinearOperator,
    RootLinearOperator,
)
from linear_operator.utils.memoize import cached
from torch import Tensor

from ...inference import OutputFactor
from ...inference.posterior.covariance import ResidualCovariance, RootCovariance
from .noisy_features import NoisyFeaturesLinearOperator, num_outputs, operator_noise
from .operator_noise import ConstantNoise
from .output_features import OutputFeatures


def _is_scales(value: Any) -> bool:
    """Whether a factor is a batch of constants, which GPyTorch multiplies densely where the operator has no batch."""
    return isinstance(value, Tensor) and value.numel() > 1 and value.shape[-2:] == (1, 1)


def _scaled(features: LinearOperator, scale: Tensor) -> Tensor | LinearOperator:
    """Features times (a batch of) numbers; those of many outputs keep their structure."""
    if isinstance(features, OutputFeatures):
        return OutputFeatures.of(features.scalar, features.factor.scaled(scale))
    return features.to_dense() * scale[..., None, None]


def _scaled_residual(operator: FeatureLinearOperator, scale: Tensor) -> ResidualCovariance | None:
    residual = operator.residual()
    return None if residual is None else residual.scaled(scale)


_MANY = 1024
"""A product of two operators with more features than these is dense."""


def _has_root(operator: Any) -> bool:
    """Whether an operator is the product of features of one output, with their transpose."""
    return isinstance(operator, RootLinearOperator) and not isinstance(operator.root, OutputFeatures)


def _keeps_low_rank(left: FeatureLinearOperator, right: RootLinearOperator) -> bool:
    is_known = isinstance(right, FeatureLinearOperator)
    return is_known or left.root.shape[-1] + right.root.shape[-1] <= left.shape[-1]


def _broadcast(left: RootLinearOperator, right: RootLinearOperator) -> list[Tensor]:
    """The roots of two operators, of the same batch shape."""
    batch = torch.broadcast_shapes(left.root.shape[:-2], right.root.shape[:-2])
    roots = [operator.root.to_dense() for operator in (left, right)]
    return [root.expand(*batch, *root.shape[-2:]) for root in roots]


def _residual_of(operator: RootLinearOperator) -> ResidualCovariance | None:
    return operator.residual() if isinstance(operator, FeatureLinearOperator) else None


def _residual_of_sum(left: RootLinearOperator, right: RootLinearOperator) -> ResidualCovariance | None:
    residuals = [residual for part in (left, right) if (residual := _residual_of(part)) is not None]
    return functools.reduce(ResidualCovariance.plus, residuals) if residuals else None


def _residual_of_product(left: RootLinearOperator, right: RootLinearOperator) -> ResidualCovariance | None:
    residuals = [_residual_of(part) for part in (left, right)]
    if all(residual is None for residual in residuals):
        return None
    first, second = left.diagonal(dim1=-1, dim2=-2), right.diagonal(dim1=-1, dim2=-2)
    first_residual, second_residual = (first.new_zeros(()) if r is None else r.variance() for r in residuals)
    missing = first_residual * second + first * second_residual + first_residual * second_residual
    return ResidualCovariance.of_variance(missing)


class FeatureLinearOperator(LowRankRootLinearOperator):
    r"""The kernel matrix :math:`\Phi \Phi^\top` of features (..., N, D); sums with a diagonal are solved in float64.

    ``residual`` returns the residual variance at every point, which on a Fourier grid is noise of
    observations: ``raises_noise``.
    """

    def __init__(
        self,
        root: Tensor | LinearOperator,
        residual: Callable[[], ResidualCovariance | None] | None = None,
        raises_noise: bool = False,
    ) -> None:
        super().__init__(root)
        self._residual, self.raises_noise = residual, raises_noise

    def evaluate_kernel(self) -> FeatureLinearOperator:
        """The operator itself, which is evaluated already."""
        return self

    def residual(self) -> ResidualCovariance | None:
        """The residual variance at every point, or None. It is no part of the matrix."""
        return None if self._residual is None else self._residual()

    def parts(self) -> tuple[Tensor, OutputFactor]:
        """Scalar features (..., N, n), and how they become those of the outputs, in float64; one output has [[1]]."""
        if isinstance(self.root, OutputFeatures):
            return self.root.scalar, self.root.factor.double()
        scalar = self.root.to_dense()
        return scalar, OutputFactor.kronecker(scalar.new_ones(1, 1, dtype=torch.float64), scalar.shape[-1])

    def _diagonal(self) -> Tensor:
        if isinstance(self.root, OutputFeatures):
            return self.root.squared_norms()
        diagonal: Tensor = super()._diagonal()
        return diagonal

    def mul(self, other: Any) -> LinearOperator:
        """The product with numbers, or element by element: with features, where at most 1,024 come out."""
        if _is_scales(other):
            return self._mul_constant(other[..., 0, 0])
        if _has_root(self) and _has_root(other) and self.root.shape[-1] * other.root.shape[-1] <= _MANY:
            left, right = _broadcast(self, other)
            residual = functools.partial(_residual_of_product, self, other)
            return self.__class__((left.unsqueeze(-1) * right.unsqueeze(-2)).flatten(-2), residual)
        return super().mul(other)

    def __rmul__(self, other: Any) -> LinearOperator:
        return self.mul(other)

    def __radd__(self, other: Any) -> LinearOperator:
        return self + other

    def _mul_constant(self, other: Tensor) -> LinearOperator:
        if bool((other < 0).any()):
            return super()._mul_constant(other)
        residual = functools.partial(_scaled_residual, self, other)
        return self.__class__(_scaled(self.root, other.sqrt()), residual, self.raises_noise)

    def add_diagonal(self, diag: Tensor) -> LinearOperator:
        return self + self.diagonal_operator(diag)

    def diagonal_operator(self, diag: Tensor) -> DiagLinearOperator:
        """A diagonal (...), (..., 1) or (..., N) as an operator of the size of this one."""
        if diag.dim() == 0 or diag.shape[-1] == 1:
            return ConstantDiagLinearOperator(diag.reshape(*diag.shape[:-1], 1), diag_shape=self.shape[-1])
        return DiagLinearOperator(diag.expand(torch.broadcast_shapes(diag.shape, self.shape[:-1])))

    def cat_rows(self, cross_mat: Any, new_mat: Any, *args: Any, **kwargs: Any) -> LinearOperator:
        """The matrix with rows ``cross_mat`` (..., M, N) and ``new_mat`` (..., M, M), as features or else dense."""
        cross, new = (to_linear_operator(part).evaluate_kernel() for part in (cross_mat, new_mat))
        if isinstance(new, FeatureLinearOperator) and new.shape[:-2] == self.shape[:-2]:
            below, above = new.root.to_dense(), self.root.to_dense()
            has_features = below.shape[-1] == above.shape[-1] <= below.shape[-2] + above.shape[-2]
            if has_features and torch.allclose(cross.to_dense(), below @ above.mT):
                return self.__class__(torch.cat([above, below], dim=-2))
        return to_linear_operator(self.to_dense()).cat_rows(cross.to_dense(), new.to_dense(), *args, **kwargs)

    def _raised(self, noise: LinearOperator) -> LinearOperator:
        """Noise of observations plus what a Fourier grid cuts off, which is noise of them too."""
        residual, outputs = self.residual() if self.raises_noise else None, num_outputs(self)
        if residual is None:
            return noise
        if outputs == 1:
            return noise + DiagLinearOperator(residual.variance().to(noise.dtype))
        known = operator_noise(noise, outputs)
        if not isinstance(known, ConstantNoise):
            raise ValueError(
                "expected one noise covariance for all rows of several outputs on a Fourier grid in an ExactGP, got "
                "known noise; use a WeightSpaceGP"
            )
        covariance = known.covariance + residual.double().dense()[0]
        one = ConstantDiagLinearOperator(
            residual.variances.new_ones(1).to(noise.dtype), diag_shape=self.shape[-1] // outputs
        )
        return KroneckerProductLinearOperator(one, DenseLinearOperator(covariance.to(noise.dtype)))

    def __add__(self, other: Any) -> LinearOperator:
        outputs = num_outputs(self)
        is_known = isinstance(other, LinearOperator) and operator_noise(other, outputs) is not None
        if is_known and not (self.batch_shape and outputs > 1):
            once = self.__class__(self.root, self._residual) if self.raises_noise else self
            return NoisyFeaturesLinearOperator(once, self._raised(other))
        if isinstance(other, DiagLinearOperator):  # a batch, of several outputs
            return self.__class__(self.root.to_dense(), self._residual) + other
        if _has_root(self) and _has_root(other) and _keeps_low_rank(self, other):
            residual = functools.partial(_residual_of_sum, self, other)
            return self.__class__(torch.cat(_broadcast(self, other), dim=-1), residual)
        return super().__add__(other)


class FeatureCrossLinearOperator(MatmulLinearOperator):
    r"""The matrix :math:`\Phi_1 \Phi_2^\top` of (..., N, D) and (..., D, M), closed under (batched) scaling."""

    def mul(self, other: Any) -> LinearOperator:
        return self._mul_constant(other[..., 0, 0]) if _is_scales(other) else super().mul(other)

    def _mul_constant(self, other: Tensor) -> LinearOperator:
        return self.__class__(_scaled(self.left_linear_op, other), self.right_linear_op)


class LazyFeatureCrossLinearOperator(LinearOperator):
    """The kernel matrix between two sets of inputs, whose features are made only where the matrix is used."""

    def __init__(
        self, x1: Tensor, x2: Tensor, evaluate: Callable[[Tensor, Tensor], LinearOperator], size: torch.Size
    ) -> None:
        super().__init__(x1, x2, evaluate=evaluate, size=size)
        self.x1, self.x2, self.evaluate, self.known_size = x1, x2, evaluate, size
        self.tracks = torch.is_grad_enabled()

    @cached(name="kernel_eval")
    def evaluate_kernel(self) -> LinearOperator:
        """The matrix with its features, which are made in the grad mode of this operator's making."""
        with torch.set_grad_enabled(self.tracks):
            return self.evaluate(self.x1, self.x2)

    def representation(self) -> tuple[Tensor, ...]:
        representation: tuple[Tensor, ...] = self.evaluate_kernel().representation()
        return representation

    def representation_tree(self) -> Any:
        return self.evaluate_kernel().representation_tree()

    def mul(self, other: Any) -> LinearOperator:
        return self._mul_constant(other[..., 0, 0]) if _is_scales(other) else super().mul(other)

    def _mul_constant(self, other: Tensor) -> LinearOperator:
        size = torch.Size((*torch.broadcast_shapes(self.shape[:-2], other.shape), *self.shape[-2:]))
        return self.__class__(self.x1, self.x2, functools.partial(_scaled_cross, self.evaluate, other), size)

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.evaluate_kernel()._matmul(rhs)

    def _size(self) -> torch.Size:
        return self.known_size

    def _transpose_nonbatch(self) -> LinearOperator:
        return self.evaluate_kernel()._transpose_nonbatch()

    def _expand_batch(self, batch_shape: torch.Size) -> LinearOperator:
        return self.evaluate_kernel()._expand_batch(batch_shape)

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        return self.evaluate_kernel()._get_indices(row_index, col_index, *batch_indices)

    def _getitem(self, row_index: Any, col_index: Any, *batch_indices: Any) -> LinearOperator:
        return self.evaluate_kernel()._getitem(row_index, col_index, *batch_indices)

    def to_dense(self) -> Tensor:
        return self.evaluate_kernel().to_dense()


def _scaled_cross(
    evaluate: Callable[[Tensor, Tensor], LinearOperator], scale: Tensor, x1: Tensor, x2: Tensor
) -> LinearOperator:
    return evaluate(x1, x2).mul(scale[..., None, None])


class PosteriorLinearOperator(RootCovariance):
    r"""A posterior covariance :math:`R R^\top`; noise is added as to that of a FeatureLinearOperator."""

    def add_diagonal(self, diag: Tensor) -> LinearOperator:
        return FeatureLinearOperator(self.root).add_diagonal(diag)

    def __add__(self, other: Any) -> LinearOperator:
        if isinstance(other, DiagLinearOperator):
            return FeatureLinearOperator(self.root) + other
        return super().__add__(other)
