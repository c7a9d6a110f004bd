"""The normal equations of many classes, from one spectrum and the rows of every class."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import Tensor

from ..linalg import log_determinant_and_quadratic
from ..linalg.complex_numbers import real_part, squared_modulus
from .class_factors import ClassFactors, log_determinants
from .class_posterior import ClassPosterior
from .class_statistics import ClassStatistics
from .posterior import WeightPosterior, precision_matrix
from .sums import ClassSums


class ClassSystems:
    r"""The normal equations of C classes on the same features, without a matrix for each.

    .. math:: B_c = I + \frac{a_c^2}{s_{0c}} G + a_c^2 \Big( \frac{1}{s_{1c}} - \frac{1}{s_{0c}} \Big) U_c^H U_c

    with the Gram matrix G of all rows, and the rows :math:`U_c` of the class: see :class:`ClassFactors`. Classes of
    more than D/2 rows have a Cholesky factor of their own.

    :param statistics: the sums over the rows.
    :param pooled: G, (D, D).
    :param sums: the weighted sums of the classes.
    :param scale: the roots :math:`a_c` of the output scales, (C,), float64.

    Source: errata, identity 1.
    """

    def __init__(self, statistics: ClassStatistics, pooled: Tensor, sums: ClassSums, scale: Tensor) -> None:
        self.statistics, self.pooled = statistics, pooled
        self.of_all = scale.square() * sums.outside
        self.of_own = scale.square() * (sums.inside - sums.outside)
        self.cross = scale.unsqueeze(-1) * sums.cross

    @functools.cached_property
    def _factors(self) -> ClassFactors:
        rows, groups = self.statistics.rows, self.statistics.row_groups
        return ClassFactors(self.pooled, rows, groups, self.of_all, self.of_own)

    @torch.no_grad()
    def posterior(self) -> ClassPosterior:
        """The posteriors of the weights, without gradients."""
        dense = self.statistics.dense
        own = WeightPosterior.stacked(self._dense(), len(dense)) if len(dense) else None
        return ClassPosterior(self._factors, own, dense, self.cross)

    def evidence_terms(self) -> tuple[Tensor, Tensor]:
        r"""The terms :math:`\log|B_c|` and :math:`h_c^H B_c^{-1} h_c` of all classes, each (C,); differentiable once.

        The latter are taken as :math:`2 \Re m_c^H h_c - m_c^H B_c m_c` at the posterior means :math:`m_c`, where the
        derivative in these is zero.
        """
        rows, groups = self.statistics.rows.to(self.pooled.dtype), self.statistics.row_groups
        parts = self.pooled, rows, groups, self.of_all, self.of_own
        log_det = log_determinants(*parts, self._factors)
        mean = self._factors.solve(self.cross.detach().unsqueeze(-1)).squeeze(-1)
        by_row = squared_modulus((rows * mean[groups]).sum(-1))
        of_rows = torch.zeros_like(log_det).index_add(0, groups, by_row)
        of_pooled = real_part(((mean.conj() @ self.pooled) * mean).sum(-1))
        product = real_part((mean.conj() * self.cross).sum(-1))
        explained = 2.0 * product - squared_modulus(mean).sum(-1) - self.of_all * of_pooled - self.of_own * of_rows
        own = [log_determinant_and_quadratic(precision_matrix(terms), cross) for terms, cross in self._dense()]
        if not own:
            return log_det, explained
        found = [torch.stack(values) for values in zip(*own, strict=True)]
        dense = self.statistics.dense
        return log_det.index_copy(0, dense, found[0]), explained.index_copy(0, dense, found[1])

    def _dense(self) -> Iterator[tuple[list[tuple[Tensor | float, Tensor]], Tensor]]:
        """The matrices and right-hand sides of the classes with Gram matrices."""
        for group, gram in zip(self.statistics.dense.tolist(), self.statistics.dense_grams, strict=True):
            yield [(self.of_all[group], self.pooled), (self.of_own[group], gram)], self.cross[group].unsqueeze(-1)
