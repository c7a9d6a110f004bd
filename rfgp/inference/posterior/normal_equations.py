"""The normal equations of a regression in weight space: weighted sums, precision, posterior, terms of the evidence."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ...linalg import is_ill_conditioned
from ...linalg.cholesky_factor import evidence_terms, factor_of, log_determinant_of
from . import kronecker
from .factor import OutputFactor
from .kronecker import KroneckerPosterior
from .posterior import GaussianPosterior, WeightPosterior, precision_matrix


class EvidenceTerms(NamedTuple):
    r"""The terms of a log evidence that depend on targets and features, summed over regressions.

    :param quadratic: :math:`r^H S^{-1} r - h^H B^{-1} h`.
    :param log_determinant: :math:`\log|S| + \log|B|`.
    :param is_ill_conditioned: whether the difference in the quadratic form may have lost its digits.
    """

    quadratic: Tensor
    log_determinant: Tensor
    is_ill_conditioned: bool = False


class Equations(abc.ABC):
    """The normal equations of one regression or several, as a noise model makes them of statistics."""

    @abc.abstractmethod
    def posterior(self, tracks: bool = False) -> GaussianPosterior:
        """The posterior of the weights, with gradients if ``tracks``."""

    @abc.abstractmethod
    def evidence_terms(self) -> EvidenceTerms:
        """The terms of the evidence, differentiable once."""


class Group(NamedTuple):
    """Rows that share a precision :math:`S_g^{-1}`, (..., T, T), with their scalar Gram matrix, (..., n, n)."""

    precision: Tensor
    gram: Tensor


class WeightedSums(NamedTuple):
    r"""Weighted sums over the residuals r of T outputs, from which the posterior follows, in float64.

    :param cross: :math:`\sum_g \Psi_g^H R_g S_g^{-1}`, (..., n, T, S), for S right-hand sides.
    :param quadratic: :math:`r^H S^{-1} r`, for one right-hand side.
    :param log_noise: :math:`\log|S|`.
    """

    groups: list[Group]
    cross: Tensor
    quadratic: Tensor
    log_noise: Tensor


class NormalEquations(Equations):
    r"""The normal equations of the weights of T outputs, with the posterior :math:`N(m, B^{-1})`.

    .. math:: B = I + \sum_g F_g^H (I \otimes S_g^{-1}) F_g, \qquad
        m = B^{-1} \sum_g F_g^H (I \otimes S_g^{-1}) r_g

    For a Kronecker factor and one group of rows two small spectra replace B. One output has the factor [[scale]].

    Source: T Eq. B.18 to B.20; errata, identities 2 and 3.
    """

    def __init__(self, sums: WeightedSums, factor: OutputFactor) -> None:
        self.sums, self.factor = sums, factor

    @property
    def terms(self) -> list[tuple[Tensor | float, Tensor]]:
        """Pairs of coefficients and matrices whose sum is B - I: one per group, or one in all for Kronecker factors."""
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
        parts = None if tracks else self.separable()
        if parts is None:
            return WeightPosterior(self.terms, self.cross)
        gram, outputs = parts
        return KroneckerPosterior(gram.detach(), self.cross.detach(), outputs.detach())

    def log_determinant(self, posterior: GaussianPosterior | None = None) -> Tensor:
        """log|B|, differentiable; by the Cholesky factor of the posterior where it has one."""
        parts = self.separable()
        if parts is not None:
            return kronecker.log_determinant(*parts)
        return log_determinant_of(factor_of(self.matrix)) if posterior is None else posterior.log_determinant

    def evidence_terms(self) -> EvidenceTerms:
        r"""The terms of the evidence.

        For separable equations :math:`h^H B^{-1} h` is computed as :math:`2 m^\top h - m^\top B m`, stationary in the
        mean m.
        """
        parts, sums = self.separable(), self.sums
        if parts is None:
            matrix = self.matrix
            log_det, explained = evidence_terms(matrix, self.cross)
            is_lossy = is_ill_conditioned(matrix.diagonal())
        else:
            gram, outputs = parts
            posterior = self.posterior()
            mean, cross = (values.reshape(len(gram), -1) for values in (posterior.mean, self.cross))
            explained = 2.0 * (mean * cross).sum() - mean.square().sum() - (mean * (gram @ mean @ outputs)).sum()
            log_det, is_lossy = kronecker.log_determinant(gram, outputs), posterior.is_ill_conditioned
        return EvidenceTerms(sums.quadratic - explained, log_det + sums.log_noise, is_lossy)


def combined(groups: list[tuple[Group, Tensor]], quadratic: Tensor, log_noise: Tensor) -> WeightedSums:
    """The weighted sums of groups and their cross products (..., n, T) or (..., n, T, S)."""
    crosses = []
    for group, cross in groups:
        columns = cross.unsqueeze(-1) if cross.dim() == group.gram.dim() else cross
        crosses.append(torch.einsum("...tu,...nus->...nts", group.precision.to(columns.dtype), columns))
    return WeightedSums([group for group, _ in groups], functools.reduce(torch.add, crosses), quadratic, log_noise)


class FewClasses(Equations):
    """The normal equations of a few classes, each with its own matrix."""

    def __init__(self, one_by_one: Callable[[], Iterator[NormalEquations]], num_classes: int) -> None:
        self.one_by_one, self.num_classes = one_by_one, num_classes

    def posterior(self, tracks: bool = False) -> WeightPosterior:
        pairs = ((equations.terms, equations.cross) for equations in self.one_by_one())
        return WeightPosterior.stacked(pairs, self.num_classes)

    def evidence_terms(self) -> EvidenceTerms:
        parts = [equations.evidence_terms()[:2] for equations in self.one_by_one()]
        quadratic, log_determinant = (torch.stack(terms).sum() for terms in zip(*parts, strict=True))
        return EvidenceTerms(quadratic, log_determinant)
