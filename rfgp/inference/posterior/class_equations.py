"""The normal equations of classes, which are regressions on the same features."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ...linalg.cholesky_factor import evidence_terms
from ...linalg.complex_numbers import real_part, squared_modulus
from ..sums.class_statistics import ClassStatistics
from .class_factors import ClassFactors, log_determinants
from .class_posterior import ClassPosterior
from .normal_equations import Equations, EvidenceTerms, NormalEquations
from .posterior import WeightPosterior, precision_matrix


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
