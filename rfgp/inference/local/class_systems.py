"""The classes of labels as systems of rows in blocks, for two Cholesky factors in all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from gpytorch.means import Mean
from torch import Tensor

from ...likelihoods.dirichlet import dirichlet_targets
from ...linalg.cholesky_factor import factor_of
from ..noise.class_labels import ClassLabels
from ..sums.mean_basis import coefficients
from ..sums.rows import Rows
from ..sums.sufficient_statistics import SufficientStatistics
from .systems import LocalSystems, grouped_rows, relative_variances

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel

_SUMS, _LABEL, _ONES = 0, 1, 2
"""Columns of rows: zeros, in whose place whitened rows have u; labels, in whose place they have members; and ones."""


class ClassSystems(LocalSystems):
    r"""Regressions on Dirichlet targets, with noise :math:`s_1` of rows in the class and :math:`s_0` of others.

    .. math:: D_c = A - E_c \delta E_c^\top, \qquad A = R + s_0 I, \qquad
        D_c^{-1} = A^{-1} + A^{-1} E_c M_c^{-1} E_c^\top A^{-1}, \qquad M_c = \delta^{-1} - E_c^\top A^{-1} E_c

    with the rows :math:`E_c` of a class and :math:`\delta = s_0 - s_1`. The matrices :math:`M_c` are the blocks of one
    matrix with zeros between rows of different classes, so that two factors serve all classes.

    Targets are :math:`z_c = d e_c + q_c` with members :math:`e_c = E_c 1` and a combination :math:`q_c` of ones and the
    basis of the mean. The group of a class has whitened rows :math:`L_c^{-1} E_c^\top A^{-1} (\Phi, e_c, 1, \ldots)`
    with :math:`M_c = L_c L_c^\top`, and beside them :math:`u_c = L_c^\top 1`, whose products are those with its members
    in the group of all rows, :math:`\Phi^\top A^{-1} e_c`: no group has a column for every class.

    Source: errata, identity 10 of the last section.
    """

    def __init__(self, kernel: FeatureKernel, mean: Mean, noise: ClassLabels) -> None:
        super().__init__(kernel, mean, noise)
        self.num_systems = noise.num_systems
        self.values = dirichlet_targets(noise.likelihood.alpha_epsilon)
        self.inside, self.outside = noise.variances_of_classes(self.residual.root.device)
        self.is_common = noise.likelihood.second_noise_covar is None
        """Whether all classes have the same noise."""

    def rows(self, x: Tensor, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        labels = rows.group_numbers.double().unsqueeze(-1)
        columns = torch.cat([torch.zeros_like(labels), labels, rows.targets.double()], dim=-1)
        return x, columns, relative_variances(rows)

    def center(self, columns: Tensor) -> Tensor:
        center = columns.mean(0)
        return torch.cat([torch.zeros_like(center[:_ONES]), center[_ONES:]])

    def targets(self, columns: Tensor) -> Tensor:
        values, (common, _) = self.values, self._common()
        members = self._members(columns).mT.double()
        return (values.inside - values.outside) * members + common @ columns[..., _ONES:].mT

    def _common(self) -> tuple[Tensor, Tensor]:
        """Targets of rows of other classes as combinations of ones and the basis, (C, 1 + k), and of all columns."""
        mean = coefficients(self.mean, 1, self.inside.device).squeeze(-1).expand(self.num_systems, -1)
        ones = torch.full_like(self.inside, self.values.outside).unsqueeze(-1)
        common = torch.cat([ones, -mean], dim=-1)
        return common, torch.nn.functional.pad(common, (_ONES, 0))

    def _members(self, columns: Tensor) -> Tensor:
        """Which rows with columns (..., n, K) are in which class, (..., n, C)."""
        return torch.nn.functional.one_hot(_labels(columns), self.num_systems).bool()

    def variances(self, columns: Tensor, variances: Tensor) -> Tensor:
        inside, outside = self.inside.unsqueeze(-1), self.outside.unsqueeze(-1)
        return torch.where(self._members(columns).mT, inside, outside) * variances.unsqueeze(-2)

    @property
    def parameters(self) -> list[Tensor]:
        return [*super().parameters, self.inside, self.outside]

    @property
    def num_groups(self) -> int:
        return self.num_systems + self.is_common

    def groups(self, system: int) -> list[int]:
        return [self.num_systems, system] if self.is_common else [system]

    def whiten(
        self, covariance: Tensor, scalar: Tensor, columns: Tensor, shift: Tensor, variances: Tensor
    ) -> tuple[Tensor, Rows]:
        labels, width, ones = _labels(columns), scalar.shape[-1], torch.ones_like(columns[:, :1])
        common = torch.cat([scalar, columns[:, _ONES:], ones], dim=-1)
        if not self.is_common:
            factor = factor_of(covariance + torch.diag_embed(self.variances(columns, variances)))
            members = self._members(columns).to(common).mT.unsqueeze(-1)
            block = torch.cat([common.expand(len(factor), -1, -1), members], dim=-1)
            white = torch.linalg.solve_triangular(factor, block, upper=False).flatten(0, 1)
            logs = 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().flatten()
            sums, groups = torch.zeros_like(white[:, :1]), self._each(len(scalar), labels.device)
            parts = [(sums, white)]
        else:
            of_all, of_classes = self._factors(covariance, columns, variances)
            white = torch.linalg.solve_triangular(of_all, common, upper=False)
            is_same = (labels.unsqueeze(-1) == labels).to(common)
            inverse = torch.cholesky_inverse(of_all)
            back = torch.linalg.solve_triangular(of_all.mT, white, upper=True)
            own = torch.cat([back, (inverse * is_same).sum(-1, keepdim=True)], dim=-1)
            inner = torch.linalg.solve_triangular(of_classes, own, upper=False)
            none = torch.zeros_like(ones)
            parts = [(none, torch.cat([white, none], dim=-1)), (of_classes.sum(0).unsqueeze(-1), inner)]
            both = [2.0 * factor.diagonal().log() for factor in (of_all, of_classes)]
            both[1] = both[1] + ((self.outside[0] - self.inside[0]) * variances).log()
            logs, groups = torch.cat(both), torch.cat([torch.full_like(labels, self.num_systems), labels])
        rows = torch.cat([_ordered(first, rest, width, shift) for first, rest in parts])
        return grouped_rows(rows, width, logs, groups, self.num_groups)

    def _each(self, count: int, device: torch.device) -> Tensor:
        """The group of every one of so many rows that every class has."""
        return torch.arange(self.num_systems, device=device).repeat_interleave(count)

    def weights(self, covariance: Tensor, cross: Tensor, columns: Tensor, variances: Tensor) -> Tensor:
        if not self.is_common:
            return super().weights(covariance, cross, columns, variances)
        of_all, of_classes = self._factors(covariance, columns, variances)
        solved = torch.cholesky_solve(cross.mT, of_all)
        inner = torch.cholesky_solve(solved, of_classes)
        members = self._members(columns).to(covariance)
        by_class = (inner.unsqueeze(-2) * members.unsqueeze(-1)).flatten(-2)
        correction = torch.cholesky_solve(by_class, of_all).unflatten(-1, (self.num_systems, -1))
        return (solved.unsqueeze(-2) + correction).movedim(-3, -1)

    def _factors(self, covariance: Tensor, columns: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
        """The Cholesky factors of A, and of the matrices M of all classes."""
        of_all = factor_of(covariance + torch.diag_embed(self.outside[0] * variances).to(covariance))
        labels = _labels(columns)
        inverse = torch.cholesky_inverse(of_all) * (labels.unsqueeze(-1) == labels.unsqueeze(-2))
        scale = 1.0 / ((self.outside[0] - self.inside[0]) * variances)
        return of_all, factor_of(torch.diag_embed(scale).to(inverse) - inverse)

    def target_sums(self, statistics: SufficientStatistics) -> tuple[Tensor, Tensor]:
        r"""The products :math:`\Phi^\top D_c^{-1} z_c`, (C, D), and :math:`z_c^\top D_c^{-1} z_c`, (C,).

        :math:`z_c^\top A^{-1} z_c` is :math:`q_c^\top A^{-1} q_c` of all rows and
        :math:`d u_c^\top \tilde\,(d e_c + 2 q_c)` of those of the class.
        """
        _, common = self._common()
        step = self.values.inside - self.values.outside
        sums, own = torch.zeros_like(common), torch.zeros_like(common)
        sums[:, _SUMS], own[:, _LABEL] = step, step
        targets = own + common
        columns = torch.stack([targets, sums, targets + common, targets + sums], dim=-1)
        cross, squares = statistics.targets.take(slice(self.num_systems)).of_combination(columns)
        of_targets, quadratic = cross[..., 3], squares[:, 0, 0] + squares[:, 1, 2]
        if self.is_common:
            of_all = statistics.targets.take(slice(self.num_systems, None))
            of_targets = of_targets + of_all.of_combination(common.mT)[0][0].mT
            quadratic = quadratic + of_all.squares(common.mT)[0]
        return of_targets, quadratic


def _labels(columns: Tensor) -> Tensor:
    """The labels (..., n) of rows with columns (..., n, K)."""
    return columns[..., _LABEL].long()


def _ordered(sums: Tensor, white: Tensor, width: int, shift: Tensor) -> Tensor:
    """Features (m, D), u, members, ones and the basis, less a shift, and whitened ones.

    :param white: features, ones and the basis, whitened ones once more, and members.
    """
    features, common, ones, members = white.split([width, white.shape[-1] - width - 2, 1, 1], dim=-1)
    return torch.cat([features, torch.cat([sums, members, common], dim=-1) - ones * shift, ones], dim=-1)
