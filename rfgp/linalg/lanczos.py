"""Lanczos iterations: quadratic forms and products of functions of a symmetric matrix that is never formed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

_CHECKED = 10
"""The iterations after which it is seen how much they change."""


_ALIKE = 1e-6
"""Relative differences of eigenvalues below which a divided difference is a derivative."""


class Krylov(NamedTuple):
    """Bases of Krylov spaces of a matrix A from R columns, and eigenvalues and eigenvectors of A in these.

    :param bases: (K, N, R), with columns of unit norm.
    :param norms: those of the first columns, (R,).
    :param nodes: (R, K).
    :param vectors: (R, K, K).
    """

    bases: Tensor
    norms: Tensor
    nodes: Tensor
    vectors: Tensor

    def quadratic_forms(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """:math:`z^\\top f(A) z` of the columns z, (R,)."""
        return self.norms.square() * (self.vectors[:, 0].square() * function(self.nodes)).sum(-1)

    def products(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """:math:`f(A) z` of the columns z, (N, R)."""
        weights = (self.vectors @ (self.vectors[:, 0] * function(self.nodes)).unsqueeze(-1)).squeeze(-1)
        return torch.einsum("knr,rk->nr", self.bases, weights * self.norms.unsqueeze(-1))

    def log_slope(self, column: int) -> tuple[Tensor, Tensor, Tensor]:
        r"""The derivative :math:`Y E Y^\top` of :math:`z^\top \log(A) z` in A, for one of the columns.

        :returns: approximate eigenvectors Y, (N, K), their eigenvalues, (K,), and E, (K, K).

        Source: Daleckii and Krein, with divided differences of the logarithm.
        """
        nodes, vectors = self.nodes[column], self.vectors[column]
        ratios = (nodes.unsqueeze(-1) - nodes) / nodes
        differences = torch.where(ratios.abs() > _ALIKE, ratios.log1p() / ratios, 1.0 - 0.5 * ratios) / nodes
        first = self.norms[column] * vectors[0]
        return self.bases[:, :, column].mT @ vectors, nodes, first.unsqueeze(-1) * differences * first


def lanczos(product: Callable[[Tensor], Tensor], columns: Tensor, tolerance: float, most: int) -> Krylov:
    r"""Iterations from columns z (N, R) until ten of them change :math:`z^\top A^{-1} z` by no more than a tolerance.

    :param product: A, positive definite, times columns.
    :param tolerance: relative to the form.
    :param most: the largest number of iterations.
    """
    norms = torch.linalg.vector_norm(columns, dim=0)
    bases, diagonals = [columns / norms], []
    besides: list[Tensor] = []
    before = torch.full_like(norms, -torch.inf)
    while True:
        found = product(bases[-1])
        diagonals.append((found * bases[-1]).sum(0))
        found = found - diagonals[-1] * bases[-1]
        if len(bases) > 1:
            found -= besides[-1] * bases[-2]
        size = torch.linalg.vector_norm(found, dim=0)
        is_last = len(diagonals) >= min(most, len(columns))
        if is_last or len(diagonals) % _CHECKED == 0:
            krylov = _of(bases, norms, diagonals, besides)
            form = krylov.quadratic_forms(torch.reciprocal)
            if is_last or bool(((form - before).abs() <= tolerance * form).all()):
                return krylov
            before = form
        besides.append(size)
        bases.append(torch.where(size > 0.0, found / size, 0.0))


def _of(bases: list[Tensor], norms: Tensor, diagonals: list[Tensor], besides: list[Tensor]) -> Krylov:
    matrix = torch.diag_embed(torch.stack(diagonals, -1))
    if besides:
        beside = torch.stack(besides, -1)
        matrix = matrix + torch.diag_embed(beside, 1) + torch.diag_embed(beside, -1)
    nodes, vectors = torch.linalg.eigh(matrix)
    return Krylov(torch.stack(bases), norms, nodes.clamp_min(torch.finfo(nodes.dtype).tiny), vectors)
