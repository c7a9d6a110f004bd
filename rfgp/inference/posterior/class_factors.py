"""Inverses and determinants of matrices that differ from one another by a few rows each."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ...linalg import is_ill_conditioned, row_chunks
from ...linalg.cholesky_factor import factor_of, log_determinant_of
from ...linalg.complex_numbers import squared_modulus
from .kronecker import spectrum


class ClassFactors:
    r"""The matrices :math:`B_c = I + k_c G + d_c U_c^H U_c` of C classes, by one spectrum and small factors.

    .. math:: Q^H B_c^{-1} Q = S_c - V_c^H V_c, \quad G = Q \Lambda Q^H, \quad S_c = (I + k_c \Lambda)^{-1}, \quad
        V_c = \sqrt{d_c} L_c^{-1} U_c Q S_c, \quad L_c L_c^H = I + d_c U_c Q S_c Q^H U_c^H

    This takes :math:`D^3 + M D^2 + \sum_c n_c^2 D` operations for :math:`M = \sum_c n_c` rows. Without gradients.

    :param pooled: G, (D, D), float64 or complex128.
    :param rows: the rows of all :math:`U_c`, (M, D), class by class.
    :param groups: the class of every row, (M,), not decreasing.
    :param of_all: k, (C,), float64, positive.
    :param of_class: d, (C,), float64, positive.

    Source: errata, identity 1, with the matrix inversion lemma.
    """

    @torch.no_grad()
    def __init__(self, pooled: Tensor, rows: Tensor, groups: Tensor, of_all: Tensor, of_class: Tensor) -> None:
        self.values, self.basis = spectrum(pooled)
        self.of_all, self.of_class, self.groups = of_all.detach(), of_class.detach(), groups
        self.reduced = rows.to(pooled.dtype) @ self.basis
        self.inner: dict[int, Tensor] = {}
        for group, part in self.parts():
            rows_of_class = self.reduced[part]
            scaled = rows_of_class * self.shrink(group)
            matrix = self.of_class[group] * (scaled @ rows_of_class.mH)
            matrix.diagonal().add_(1.0)
            self.inner[group] = factor_of(matrix)
            scaled *= self.of_class[group].sqrt()
            rows_of_class.copy_(torch.linalg.solve_triangular(self.inner[group], scaled, upper=False))

    def parts(self) -> Iterator[tuple[int, slice]]:
        """The classes that have rows, and which rows these are."""
        names, counts = self.groups.unique_consecutive(return_counts=True)
        stops = counts.cumsum(0)
        for group, start, stop in zip(names.tolist(), (stops - counts).tolist(), stops.tolist(), strict=True):
            yield group, slice(start, stop)

    def shrink(self, classes: int | slice) -> Tensor:
        """The diagonal of S of one class, (D,), or those of several, (n, D)."""
        return 1.0 / (1.0 + self.of_all[classes].unsqueeze(-1) * self.values)

    @property
    def is_ill_conditioned(self) -> bool:
        """Whether rounding may cost the mean more than half of its digits."""
        return is_ill_conditioned(1.0 + self.of_all.max() * self.values)

    @functools.cached_property
    def log_determinant(self) -> Tensor:
        """log|B_c|, (C,)."""
        total = torch.log1p(self.of_all.unsqueeze(-1) * self.values).sum(-1)
        for group, factor in self.inner.items():
            total[group] += log_determinant_of(factor)
        return total

    def solve(self, rhs: Tensor) -> Tensor:
        """B_c^-1 times columns (C, D, K)."""
        rotated = _product(self.basis.mH, rhs.to(self.basis.dtype))
        result = rotated * self.shrink(slice(None)).unsqueeze(-1)
        for group, part in self.parts():
            rows_of_class = self.reduced[part]
            result[group] -= rows_of_class.mH @ (rows_of_class @ rotated[group])
        return _product(self.basis, result)

    def variance(self, features: Tensor) -> Tensor:
        """The diagonals (C, N) of the products of features (N, D) with B_c^-1 and their adjoint."""
        rotated = features.to(self.basis.dtype) @ self.basis
        result = self.shrink(slice(None)) @ squared_modulus(rotated).mT
        for part in row_chunks(len(self.reduced), max(len(rotated), self.reduced.shape[-1])):
            along = squared_modulus(self.reduced[part].conj() @ rotated.mT)
            result.index_add_(0, self.groups[part], along, alpha=-1.0)
        return result

    def root(self, features: Tensor) -> Tensor:
        """Roots (C, N, D) of the products of features (N, D) with B_c^-1 and their adjoint."""
        rotated = features.to(self.basis.dtype) @ self.basis
        result = rotated * self.shrink(slice(None)).sqrt().unsqueeze(-2)
        for group, part in self.parts():
            white, mixed = self._halves(group, part)
            result[group] -= (result[group] @ white.mH) @ mixed
        return result

    def deviations(self, noise: Tensor) -> Tensor:
        """Draws with the covariances B_c^-1 from standard normal numbers, (C, D, S)."""
        result = noise.clone()
        for group, part in self.parts():
            white, mixed = self._halves(group, part)
            result[group] -= white.mH @ (mixed @ noise[group])
        return _product(self.basis, result * self.shrink(slice(None)).sqrt().unsqueeze(-1))

    def _halves(self, group: int, part: slice) -> tuple[Tensor, Tensor]:
        r"""Z and :math:`(L + I)^{-1} L Z`, with which :math:`S^{1/2} (I - Z^H (L + I)^{-1} L Z)` is a root."""
        white, factor = self.reduced[part] / self.shrink(group).sqrt(), self.inner[group]
        shifted = factor + torch.eye(len(factor), dtype=factor.dtype, device=factor.device)
        return white, torch.linalg.solve_triangular(shifted, factor @ white, upper=False)


class _LogDeterminants(torch.autograd.Function):
    """log|B_c| of all classes; its gradients need the inverses, but no derivatives of eigenvectors."""

    @staticmethod
    def forward(
        ctx: Any, pooled: Tensor, rows: Tensor, groups: Tensor, of_all: Tensor, of_class: Tensor, factors: ClassFactors
    ) -> Tensor:
        ctx.factors, ctx.dtype = factors, rows.dtype
        return factors.log_determinant.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        factors, shrink = ctx.factors, ctx.factors.shrink(slice(None))
        weights = grad * factors.of_all
        diagonal = weights @ shrink
        squares = torch.zeros_like(shrink)
        by_rows = torch.empty_like(factors.reduced)
        inner = torch.diag(diagonal).to(by_rows.dtype)
        for group, part in factors.parts():
            rows_of_class, factor = factors.reduced[part], factors.inner[group]
            squares[group] = squared_modulus(rows_of_class).sum(0)
            back = torch.linalg.solve_triangular(factor.mH, rows_of_class, upper=True)
            by_rows[part] = 2.0 * factors.of_class[group].sqrt() * grad[group] * back
        for part in row_chunks(len(by_rows), by_rows.shape[-1]):
            rows_of_class = factors.reduced[part]
            inner -= (rows_of_class * weights[factors.groups[part]].unsqueeze(-1)).mH @ rows_of_class
        by_all = grad * ((shrink - squares) @ factors.values)
        by_class = grad * (squares / shrink).sum(-1) / factors.of_class
        by_pooled = factors.basis @ inner @ factors.basis.mH
        return by_pooled, (by_rows @ factors.basis.mH).to(ctx.dtype), None, by_all, by_class, None


def log_determinants(
    pooled: Tensor, rows: Tensor, groups: Tensor, of_all: Tensor, of_class: Tensor, factors: ClassFactors
) -> Tensor:
    """log|B_c| of all classes, (C,), differentiable once; the arguments are those of ClassFactors."""
    return _LogDeterminants.apply(pooled, rows, groups, of_all, of_class, factors)


def _product(matrix: Tensor, columns: Tensor) -> Tensor:
    """A matrix (D, D) times (C, D, K), as one product."""
    flat = matrix @ columns.movedim(0, 1).flatten(1)
    return flat.unflatten(1, (columns.shape[0], columns.shape[2])).movedim(1, 0)
