"""Regression with a separable covariance of inputs and outputs, by the eigenvalues of two small matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ...linalg import check_factor, is_ill_conditioned
from .factor import OutputFactor
from .posterior import GaussianPosterior, PointVariance


class _LogDeterminant(torch.autograd.Function):
    """log|I + G kron C| from two spectra; its gradients need eigenvectors, but no derivatives of these."""

    @staticmethod
    def forward(ctx: Any, gram: Tensor, outputs: Tensor) -> Tensor:
        (lam, u), (gamma, v) = spectrum(gram), spectrum(outputs)
        ctx.save_for_backward(lam, u, gamma, v)
        return torch.log1p(lam[:, None] * gamma).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        lam, u, gamma, v = ctx.saved_tensors
        shrink = 1.0 / (1.0 + lam[:, None] * gamma)
        by_row, by_output = grad * (shrink @ gamma), grad * (lam @ shrink)
        return (u * by_row) @ u.mT, (v * by_output) @ v.mT


def spectrum(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues of a positive semidefinite matrix, those below zero by rounding set to zero, and eigenvectors."""
    check_factor(matrix, torch.zeros((), dtype=torch.int32, device=matrix.device))
    values, vectors = torch.linalg.eigh(matrix)
    return values.clamp_min(0.0), vectors


def log_determinant(gram: Tensor, outputs: Tensor) -> Tensor:
    r""":math:`\log |I + G \otimes C| = \sum_{jr} \log(1 + \lambda_j \gamma_r)`, differentiable once."""
    return _LogDeterminant.apply(gram, outputs)


class KroneckerPosterior(GaussianPosterior):
    r"""Posterior of the weights of a separable kernel, at :math:`n^3 + R^3` instead of :math:`(n R)^3`.

    .. math:: B = I + G \otimes C, \qquad C = A^\top \Sigma^{-1} A, \qquad G = U \lambda U^\top, \quad
        C = V \gamma V^\top

    Columns are ordered as in :meth:`rfgp.inference.OutputFactor.kronecker`. Without gradients.

    :param gram: the scalar Gram matrix G, (n, n), float64.
    :param cross: :math:`\Psi^\top R\, \Sigma^{-1} A`, (n R, S), float64, for S right-hand sides.
    :param outputs: C, (R, R), float64.

    Source: errata, identity 3.

    >>> one = torch.eye(1, dtype=torch.float64)
    >>> KroneckerPosterior(one, one, one).mean
    tensor([[0.5000]], dtype=torch.float64)
    """

    @torch.no_grad()
    def __init__(self, gram: Tensor, cross: Tensor, outputs: Tensor) -> None:
        (lam, self._u), (self._gamma, self._v) = spectrum(gram), spectrum(outputs)
        self._shrink = 1.0 / (1.0 + lam[:, None] * self._gamma)
        self.mean = self.solve(cross)

    @torch.no_grad()
    def solve(self, rhs: Tensor) -> Tensor:
        columns = rhs.unflatten(0, self._shrink.shape).mT
        turned = (self._u.mT @ columns.flatten(1)).view(columns.shape) @ self._v
        shrunk = (self._shrink.unsqueeze(1) * turned) @ self._v.mT
        return (self._u @ shrunk.flatten(1)).view(columns.shape).mT.flatten(0, 1)

    @property
    def is_ill_conditioned(self) -> bool:
        return is_ill_conditioned(1.0 / self._shrink)

    @property
    def log_determinant(self) -> Tensor:
        return -self._shrink.log().sum()

    def function_variance(self, scalar: Tensor, outputs: OutputFactor) -> Tensor:
        directions, _ = self.output_directions(outputs)
        return (self.direction_variances(scalar) @ directions.square().mT).flatten(-2)

    def variance_width(self, outputs: OutputFactor) -> int:
        return outputs.num_scalar

    def num_point_roots(self, outputs: OutputFactor) -> int:
        return 1

    def output_directions(self, outputs: OutputFactor) -> tuple[Tensor, Tensor]:
        r"""M = A V, (T, R), and :math:`\gamma`, (R,), with :math:`M^\top \Sigma^{-1} M = \mathrm{diag}(\gamma)`."""
        return self._root_of(outputs) @ self._v, self._gamma

    def direction_variances(self, scalar: Tensor) -> Tensor:
        r"""The variances w (..., N, R) of functions along M: their covariance is :math:`M \mathrm{diag}(w) M^\top`."""
        return (scalar.double() @ self._u).square() @ self._shrink

    def direction_covariances(self, scalar: Tensor, size: int) -> Tensor:
        if size == 1:
            return self.direction_variances(scalar)[..., None, None]
        turned = (scalar.double() @ self._u).unflatten(0, (-1, 1, size))
        return (turned * self._shrink.mT.unsqueeze(-2)) @ turned.mT

    @torch.no_grad()
    def point_variance(self, outputs: OutputFactor) -> PointVariance:
        return PointVariance([self._u], self._shrink @ (self._root_of(outputs) @ self._v).square().mT)

    def block_covariances(self, scalar: Tensor, outputs: OutputFactor, size: int = 1) -> Tensor:
        if size > 1:
            return super().block_covariances(scalar, outputs, size)
        root, _ = self.output_directions(outputs)
        return (root * self.direction_variances(scalar).unsqueeze(-2)) @ root.mT

    def function_root(self, scalar: Tensor, outputs: OutputFactor) -> Tensor:
        left, right = scalar.double() @ self._u, self._root_of(outputs) @ self._v
        product = left[..., :, None, :, None] * right[..., None, :, None, :] * self._shrink.sqrt()
        return product.flatten(-2).flatten(-3, -2)

    @staticmethod
    def _root_of(outputs: OutputFactor) -> Tensor:
        if outputs.covariance_root is None:
            raise ValueError("expected the factor of a separable kernel, got another; predict without an operator")
        return outputs.covariance_root.double()

    def deviations(self, num_samples: int) -> Tensor:
        noise = torch.randn(num_samples, *self._shrink.shape, dtype=self._shrink.dtype, device=self._shrink.device)
        return (self._u @ (noise * self._shrink.sqrt()) @ self._v.mT).flatten(1).mT
