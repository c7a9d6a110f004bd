"""Many classes, which are regressions on the same features: equations and posteriors without a matrix for each."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ...linalg import is_ill_conditioned, row_chunks
from ...linalg.cholesky_factor import evidence_terms, factor_of, log_determinant_of
from ...linalg.complex_numbers import real_part, squared_modulus
from ..sums.class_statistics import ClassStatistics
from .factor import OutputFactor
from .kronecker import spectrum
from .normal_equations import Equations, EvidenceTerms
from .posterior import GaussianPosterior, WeightPosterior, precision_matrix


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


class ClassPosterior(GaussianPosterior):
    r"""Posteriors :math:`N(m_c, B_c^{-1})` of the weights of C classes, without a D x D matrix for each.

    Classes of few rows share one spectrum, the others (``dense``) have a Cholesky factor each. Without gradients.

    :param shared: the matrices of all classes.
    :param of_dense: the posteriors of the classes in ``dense``, if any.
    :param dense: the numbers of these classes, (P,).
    :param cross: :math:`\Phi^H S_c^{-1} y_c`, (C, D).

    Source: errata, identity 1.

    >>> import gpytorch, rfgp
    >>> labels = torch.arange(60) % 40
    >>> likelihood = rfgp.likelihoods.DirichletClassificationLikelihood(labels, learn_additional_noise=False)
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), 64, input_dim=2)
    >>> model = rfgp.WeightSpaceGP(kernel, likelihood).condition(torch.randn(60, 2), labels)
    >>> model.posterior(torch.randn(5, 2)).variance.shape
    torch.Size([40, 5])
    """

    @torch.no_grad()
    def __init__(self, shared: ClassFactors, of_dense: WeightPosterior | None, dense: Tensor, cross: Tensor) -> None:
        self.shared, self.of_dense, self.dense = shared, of_dense, dense
        self.mean = self.solve(cross.detach().unsqueeze(-1))

    @property
    def batch_shape(self) -> torch.Size:
        return self.mean.shape[:1]

    def _with_dense(self, values: Tensor, of_dense: Tensor) -> Tensor:
        """Values of all classes, with those of the dense ones in their places."""
        values[self.dense] = of_dense.to(values.dtype)
        return values

    @functools.cached_property
    def log_determinant(self) -> Tensor:
        values = self.shared.log_determinant.clone()
        return values if self.of_dense is None else self._with_dense(values, self.of_dense.log_determinant)

    def solve(self, rhs: Tensor) -> Tensor:
        values = self.shared.solve(rhs)
        return (
            values
            if self.of_dense is None
            else self._with_dense(values, self.of_dense.solve(rhs[self.dense].to(values.dtype)))
        )

    @property
    def is_ill_conditioned(self) -> bool:
        return self.shared.is_ill_conditioned or (self.of_dense is not None and self.of_dense.is_ill_conditioned)

    def covariance_root(self, features: Tensor) -> Tensor:
        """Roots (C, N, D) of the posterior covariances of the functions with features (N, D)."""
        values = self.shared.root(features)
        if self.of_dense is None:
            return values
        return self._with_dense(
            values, self.of_dense.covariance_root(features.expand(len(self.dense), *features.shape))
        )

    def function_root(self, scalar: Tensor, outputs: OutputFactor) -> Tensor:
        return _scale(outputs) * self.covariance_root(scalar)

    def function_variance(self, scalar: Tensor, outputs: OutputFactor) -> Tensor:
        values = self.shared.variance(scalar)
        if self.of_dense is not None:
            one = OutputFactor.kronecker(values.new_ones(1, 1), scalar.shape[-1])
            values = self._with_dense(values, self.of_dense.function_variance(scalar, one))
        return _scale(outputs).squeeze(-1).square() * values

    def deviations(self, num_samples: int) -> Tensor:
        shape = (*self.mean.shape[:-1], num_samples)
        noise = torch.randn(shape, dtype=self.shared.basis.dtype, device=self.mean.device)
        values = self.shared.deviations(noise)
        return values if self.of_dense is None else self._with_dense(values, self.of_dense.deviations(num_samples))


def _scale(outputs: OutputFactor) -> Tensor:
    """The scales (C, 1, 1) or (1, 1) of the outputs."""
    if outputs.covariance_root is None:
        raise ValueError("expected the factor of output scales, got another; make it with OutputFactor.kronecker")
    return outputs.covariance_root


class ClassSums(NamedTuple):
    r"""The weighted sums of C classes, beside Gram matrices.

    :param outside: the noise precisions of rows of other classes, (C,).
    :param inside: those of the rows of the class, (C,).
    :param cross: :math:`\Phi^H S_c^{-1} r_c`, (C, D).
    :param quadratic: :math:`r_c^H S_c^{-1} r_c`, (C,).
    :param log_noise: :math:`\log|S_c|`, (C,).
    """

    outside: Tensor
    inside: Tensor
    cross: Tensor
    quadratic: Tensor
    log_noise: Tensor


class ManyClasses(Equations):
    r"""The normal equations of many classes, without a matrix for each (errata, identity 1).

    .. math:: B_c = I + \frac{a_c^2}{s_{0c}} G + a_c^2 \Big( \frac{1}{s_{1c}} - \frac{1}{s_{0c}} \Big) U_c^H U_c

    with the Gram matrix G of all rows (``pooled``), the rows :math:`U_c` of the class and the roots :math:`a_c` of the
    output scales (``scale``). Classes of more than D/2 rows have a Cholesky factor each.
    """

    def __init__(self, statistics: ClassStatistics, pooled: Tensor, sums: ClassSums, scale: Tensor) -> None:
        self.statistics, self.pooled, self.sums = statistics, pooled, sums
        self.of_all = scale.square() * sums.outside
        self.of_class = scale.square() * (sums.inside - sums.outside)
        self.cross = scale.unsqueeze(-1) * sums.cross

    @functools.cached_property
    def _factors(self) -> ClassFactors:
        rows, groups = self.statistics.rows, self.statistics.row_groups
        return ClassFactors(self.pooled, rows, groups, self.of_all, self.of_class)

    @torch.no_grad()
    def posterior(self, tracks: bool = False) -> ClassPosterior:
        """The posteriors of the weights, without gradients."""
        dense = self.statistics.dense
        with_factors = WeightPosterior.stacked(self._dense(), len(dense)) if len(dense) else None
        return ClassPosterior(self._factors, with_factors, dense, self.cross)

    def evidence_terms(self) -> EvidenceTerms:
        r"""The terms of the evidence.

        :math:`h_c^H B_c^{-1} h_c` is computed as :math:`2 \Re m_c^H h_c - m_c^H B_c m_c`, stationary in the mean
            :math:`m_c`.
        """
        rows, groups = self.statistics.rows.to(self.pooled.dtype), self.statistics.row_groups
        log_det = log_determinants(self.pooled, rows, groups, self.of_all, self.of_class, self._factors)
        mean = self._factors.solve(self.cross.detach().unsqueeze(-1)).squeeze(-1)
        by_row = squared_modulus((rows * mean[groups]).sum(-1))
        of_rows = torch.zeros_like(log_det).index_add(0, groups, by_row)
        of_pooled = real_part(((mean.conj() @ self.pooled) * mean).sum(-1))
        product = real_part((mean.conj() * self.cross).sum(-1))
        explained = 2.0 * product - squared_modulus(mean).sum(-1) - self.of_all * of_pooled - self.of_class * of_rows
        parts = [evidence_terms(precision_matrix(terms), cross) for terms, cross in self._dense()]
        if parts:
            logs, forms = (torch.stack(values) for values in zip(*parts, strict=True))
            dense = self.statistics.dense
            log_det, explained = log_det.index_copy(0, dense, logs), explained.index_copy(0, dense, forms)
        return EvidenceTerms((self.sums.quadratic - explained).sum(), (log_det + self.sums.log_noise).sum())

    def _dense(self) -> Iterator[tuple[list[tuple[Tensor | float, Tensor]], Tensor]]:
        """The matrices and right-hand sides of the classes with Gram matrices."""
        for group, gram in zip(self.statistics.dense.tolist(), self.statistics.dense_grams, strict=True):
            yield [(self.of_all[group], self.pooled), (self.of_class[group], gram)], self.cross[group].unsqueeze(-1)
