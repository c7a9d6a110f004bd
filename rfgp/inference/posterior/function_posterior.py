"""The Gaussian posterior of the weights of several latent functions on the same features."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ...linalg.cholesky_factor import log_determinant_of
from .factor import OutputFactor
from .posterior import GaussianPosterior


class FunctionPosterior(GaussianPosterior):
    """Posterior :math:`N(w, B^{-1})` of the weights of Q functions on the same D scalar features.

    :param factor: the Cholesky factor of B, (1, Q D, Q D), function by function, or of its blocks, (Q, D, D).
    :param weights: w, (D, Q).
    """

    def __init__(self, factor: Tensor, weights: Tensor) -> None:
        self.factor, self.weights = factor, weights
        self.mean = weights.reshape(-1, 1)

    def solve(self, rhs: Tensor) -> Tensor:
        columns = rhs.unflatten(0, self.weights.shape).transpose(0, 1).reshape(*self.factor.shape[:-1], -1)
        solved = torch.cholesky_solve(columns, self.factor).reshape(*self.weights.mT.shape, -1)
        return solved.transpose(0, 1).flatten(0, 1)

    @property
    def log_determinant(self) -> Tensor:
        return log_determinant_of(self.factor).sum()

    @functools.cached_property
    def _marginal_roots(self) -> Tensor:
        r"""Roots R of the covariance of the weights of each function, :math:`R R^\top`, (Q, D, D)."""
        width, count = self.weights.shape
        identity = torch.eye(width, dtype=self.factor.dtype, device=self.factor.device)
        if len(self.factor) == count:
            return torch.linalg.solve_triangular(self.factor.mT, identity, upper=True)
        inverse = torch.cholesky_inverse(self.factor[0]).unflatten(0, (count, width)).unflatten(-1, (count, width))
        return torch.linalg.cholesky(torch.stack([inverse[q, :, q] for q in range(count)]))

    def function_root(self, scalar: Tensor, outputs: OutputFactor) -> Tensor:
        count = self.weights.shape[-1]
        scaled = scalar.double().unsqueeze(-2) * _scales(outputs).unsqueeze(-1)
        if len(self.factor) == count:
            rows = torch.linalg.solve_triangular(self.factor, scaled.movedim(-2, 0).mT, upper=False).mT
            return _side_by_side(rows.movedim(0, -2))
        return torch.linalg.solve_triangular(self.factor[0], _side_by_side(scaled).mT, upper=False).mT

    def function_variance(self, scalar: Tensor, outputs: OutputFactor) -> Tensor:
        exact, roots = scalar.double(), self._marginal_roots
        variances = [(exact @ root).square().sum(-1) for root in roots]
        return (torch.stack(variances, dim=-1) * _scales(outputs).square()).flatten(-2)

    def deviations(self, num_samples: int) -> Tensor:
        shape = (*self.factor.shape[:-1], num_samples)
        noise = torch.randn(shape, dtype=self.factor.dtype, device=self.factor.device)
        draws = torch.linalg.solve_triangular(self.factor.mT, noise, upper=True)
        return draws.reshape(*self.weights.mT.shape, num_samples).transpose(0, 1).flatten(0, 1)


def _side_by_side(rows: Tensor) -> Tensor:
    """Rows (..., N, Q, D) in the columns of their function, with zeros in those of others, (..., N Q, Q D)."""
    return torch.diag_embed(rows.mT, dim1=-3, dim2=-2).flatten(-2).flatten(-3, -2)


def _scales(outputs: OutputFactor) -> Tensor:
    """The roots of the output scales, (Q,)."""
    root = outputs.covariance_root
    if root is None:
        raise ValueError("expected the factor of output scales, got another; make it with OutputFactor.kronecker")
    return root.diagonal()
