"""Regression of several outputs in terms of scalar Gram matrices: precision, posterior and determinant."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from . import kronecker
from .kronecker import KroneckerPosterior
from .linalg import cholesky, log_determinant
from .output_factor import OutputFactor
from .posterior import WeightPosterior, precision_matrix


class OutputGroup(NamedTuple):
    r"""Rows with one precision :math:`S^{-1}` of their outputs, (T, T), and their sums over rows.

    ``gram`` is :math:`\Psi^\top \Psi`, (n, n), and ``cross`` is :math:`\Psi^\top R`, (n, T), both float64.
    """

    precision: Tensor
    gram: Tensor
    cross: Tensor


class OutputSystem:
    r"""The posterior :math:`N(m, B^{-1})` of the weights of T outputs.

    .. math:: B = I + \sum_g F_g^\top (I \otimes S_g^{-1}) F_g, \qquad
        m = B^{-1} \sum_g F_g^\top (I \otimes S_g^{-1}) r_g

    Where the factor is a Kronecker product and there is one group, two small spectra serve in place of B.

    :param groups: the rows, by the precision of their outputs.
    :param factor: how scalar features become those of the outputs, in float64.

    Source: errata, identities 2 and 3.
    """

    def __init__(self, groups: list[OutputGroup], factor: OutputFactor) -> None:
        self.groups, self.factor = groups, factor

    @property
    def matrix(self) -> Tensor:
        """B, (K, K)."""
        return precision_matrix([(1.0, self._gram)])

    @property
    def _gram(self) -> Tensor:
        r"""B - I: for Kronecker factors :math:`\sum_g G_g \otimes A^\top S_g^{-1} A` as one matrix product."""
        root = self.factor.covariance_root
        if root is None:
            grams = [self.factor.gram(group.gram, group.precision) for group in self.groups]
            return sum(grams[1:], grams[0])
        scalar = torch.stack([group.gram for group in self.groups])
        outputs = torch.stack([root.mT @ group.precision @ root for group in self.groups])
        return torch.einsum("gjk,grs->jrks", scalar, outputs).flatten(2).flatten(0, 1)

    @property
    def cross(self) -> Tensor:
        """The right-hand side of m, (K, 1)."""
        parts = [self.factor.cross(group.cross, group.precision) for group in self.groups]
        return sum(parts[1:], parts[0])

    def separable(self) -> tuple[Tensor, Tensor, Tensor] | None:
        r"""G (n, n), :math:`C = A^\top S^{-1} A` and :math:`\Psi^\top R S^{-1} A` with B = I + G kron C; else None."""
        root = self.factor.covariance_root
        if root is None or len(self.groups) != 1:
            return None
        precision, gram, cross = self.groups[0]
        return gram, root.mT @ precision @ root, cross @ precision @ root

    def posterior(self, tracks: bool = False) -> WeightPosterior | KroneckerPosterior:
        """The posterior of the weights.

        :param tracks: whether gradients are to run back through it.
        """
        parts = None if tracks else self.separable()
        if parts is None:
            return WeightPosterior(self._gram, self.cross)
        gram, outputs, cross = parts
        return KroneckerPosterior(gram.detach(), cross.detach(), outputs.detach())

    def log_determinant(self) -> Tensor:
        """log|B|, differentiable."""
        parts = self.separable()
        if parts is None:
            return log_determinant(cholesky(self.matrix))
        return kronecker.log_determinant(parts[0], parts[1])
