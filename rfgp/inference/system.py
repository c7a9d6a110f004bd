"""The normal equations of one regression in weight space: precision, posterior and determinant."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ..linalg import cholesky, is_ill_conditioned, log_determinant, log_determinant_and_quadratic
from . import kronecker
from .factor import OutputFactor
from .kronecker import KroneckerPosterior
from .posterior import GaussianPosterior, WeightPosterior, precision_matrix
from .sums import WeightedSums


class WeightSystem:
    r"""The normal equations of the weights of T outputs, with the posterior :math:`N(m, B^{-1})`.

    .. math:: B = I + \sum_g F_g^H (I \otimes S_g^{-1}) F_g, \qquad
        m = B^{-1} \sum_g F_g^H (I \otimes S_g^{-1}) r_g

    Where the factor of several outputs is a Kronecker product and there is one group of rows, two small spectra serve
    in place of B. One output is T = 1 with the factor [[scale]], and has the Cholesky factor of B.

    :param sums: the weighted sums over rows.
    :param factor: how scalar features become those of the outputs, in float64.

    Source: T Eq. B.18 to B.20; errata, identities 2 and 3.

    >>> import gpytorch, rfgp
    >>> from rfgp.inference import Regression, accumulate, noise_model
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), 16, input_dim=2)
    >>> noise = noise_model(gpytorch.likelihoods.GaussianLikelihood())
    >>> x, y = torch.randn(50, 2), torch.randn(50)
    >>> rows = noise.rows(x, y, None, torch.empty(50, 0), is_all=True)
    >>> sums = accumulate(kernel, noise, x, rows, torch.float64)
    >>> [system] = Regression(kernel, gpytorch.means.ZeroMean(), noise).systems(sums)
    >>> system.matrix.shape, system.posterior().mean.shape
    (torch.Size([16, 16]), torch.Size([16, 1]))
    """

    def __init__(self, sums: WeightedSums, factor: OutputFactor) -> None:
        self.sums, self.factor = sums, factor

    @property
    def terms(self) -> list[tuple[Tensor | float, Tensor]]:
        r"""Pairs of coefficients and matrices whose sum is B - I.

        One pair per group for one column per scalar feature; for Kronecker factors
        :math:`\sum_g G_g \otimes A^\top S_g^{-1} A` as one matrix product.
        """
        root, groups = self.factor.covariance_root, self.sums.groups
        if root is None:
            grams = [self.factor.gram(group.gram, group.precision) for group in groups]
            return [(1.0, functools.reduce(torch.add, grams))]
        outputs = [root.mT @ group.precision @ root for group in groups]
        if root.shape[-1] == 1:
            return [(part, group.gram) for part, group in zip(outputs, groups, strict=True)]
        grams = [group.gram for group in groups]
        product = torch.einsum("gjk,grs->jrks", torch.stack(grams), torch.stack(outputs))
        return [(1.0, product.flatten(2).flatten(0, 1))]

    @property
    def matrix(self) -> Tensor:
        """B, (..., K, K)."""
        return precision_matrix(self.terms)

    @functools.cached_property
    def cross(self) -> Tensor:
        """The right-hand sides of m, (..., K, S)."""
        return self.factor.adjoint(self.sums.cross)

    def separable(self) -> tuple[Tensor, Tensor] | None:
        r"""G (n, n) and :math:`C = A^\top S^{-1} A` with B = I + G kron C; None where there is no such form."""
        root = self.factor.covariance_root
        if root is None or root.shape[-1] == 1 or len(self.sums.groups) != 1:
            return None
        ((precision, gram),) = self.sums.groups
        return gram, root.mT @ precision @ root

    def posterior(self, tracks: bool = False) -> GaussianPosterior:
        """The posterior of the weights.

        :param tracks: whether gradients are to run back through it.
        """
        parts = None if tracks else self.separable()
        if parts is None:
            return WeightPosterior(self.terms, self.cross)
        gram, outputs = parts
        return KroneckerPosterior(gram.detach(), self.cross.detach(), outputs.detach())

    def log_determinant(self, posterior: GaussianPosterior | None = None) -> Tensor:
        """log|B|, differentiable.

        :param posterior: the posterior of the weights, where it is there and has the Cholesky factor.
        """
        parts = self.separable()
        if parts is not None:
            return kronecker.log_determinant(*parts)
        return log_determinant(cholesky(self.matrix)) if posterior is None else posterior.log_determinant

    def evidence_terms(self) -> tuple[Tensor, Tensor, bool]:
        r"""The terms :math:`\log|B|` and :math:`h^H B^{-1} h` of the evidence, and whether the latter lost digits.

        For separable systems the quadratic term is taken as :math:`2 m^\top h - m^\top B m` at the posterior mean m,
        where the derivative in m is zero: its gradient needs no derivative of m, and none of an eigenvector.
        """
        parts = self.separable()
        if parts is None:
            matrix = self.matrix
            log_det, explained = log_determinant_and_quadratic(matrix, self.cross)
            return log_det, explained, is_ill_conditioned(matrix.diagonal())
        gram, outputs = parts
        posterior = KroneckerPosterior(gram.detach(), self.cross.detach(), outputs.detach())
        mean, cross = (values.reshape(len(gram), -1) for values in (posterior.mean, self.cross))
        explained = 2.0 * (mean * cross).sum() - mean.square().sum() - (mean * (gram @ mean @ outputs)).sum()
        return kronecker.log_determinant(gram, outputs), explained, posterior.is_ill_conditioned
