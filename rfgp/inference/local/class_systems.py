"""The classes of labels as systems of rows in blocks, for two Cholesky factors in all."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.means import Mean
from torch import Tensor

from ...likelihoods.dirichlet import dirichlet_targets
from ...linalg.cholesky_factor import factor_of
from ..noise.class_labels import ClassLabels
from ..sums.mean_basis import coefficients
from ..sums.rows import Rows
from .systems import LocalSystems, grouped_rows, relative_variances


class ClassSystems(LocalSystems):
    r"""Regressions on Dirichlet targets, with noise :math:`s_1` of rows in the class and :math:`s_0` of others.

    .. math:: D_c = A - E_c \delta E_c^\top, \qquad A = R + s_0 I, \qquad
        D_c^{-1} = A^{-1} + A^{-1} E_c M_c^{-1} E_c^\top A^{-1}, \qquad M_c = \delta^{-1} - E_c^\top A^{-1} E_c

    with the rows :math:`E_c` of a class and :math:`\delta = s_0 - s_1`. The matrices :math:`M_c` are the blocks of one
    matrix with zeros between rows of different classes, so that two factors serve all classes.

    The columns of the rows are the memberships of C classes, ones, and the basis of the mean.

    Source: errata, identity 10 of the last section.
    """

    def __init__(self, kernel: Any, mean: Mean, noise: ClassLabels) -> None:
        super().__init__(kernel)
        self.mean, self.num_systems = mean, noise.num_systems
        self.values = dirichlet_targets(noise.likelihood.alpha_epsilon)
        self.inside, self.outside = noise.variances_of_classes(self.residual.root.device)
        self.is_common = noise.likelihood.second_noise_covar is None
        """Whether all classes have the same noise."""

    def rows(self, x: Tensor, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        members = torch.nn.functional.one_hot(rows.group_numbers, self.num_systems).double()
        columns = torch.cat([members, rows.targets.double()], dim=-1)
        return x, columns, relative_variances(rows)

    def combinations(self) -> Tensor:
        inside, outside = self.values.inside, self.values.outside
        identity = torch.eye(self.num_systems, dtype=torch.float64, device=self.inside.device)
        mean = coefficients(self.mean, 1, self.inside.device).squeeze(-1).expand(self.num_systems, -1)
        ones = torch.full_like(self.inside, outside).unsqueeze(-1)
        return torch.cat([(inside - outside) * identity, ones, -mean], dim=-1)

    def variances(self, columns: Tensor, variances: Tensor) -> Tensor:
        members = columns[..., : self.num_systems].mT
        inside, outside = self.inside.unsqueeze(-1), self.outside.unsqueeze(-1)
        return (outside + (inside - outside) * members) * variances.unsqueeze(-2)

    @property
    def parameters(self) -> list[Tensor]:
        return [*super().parameters, self.inside, self.outside]

    @property
    def num_groups(self) -> int:
        return self.num_systems + self.is_common

    def groups(self, system: int) -> list[int]:
        return [self.num_systems, system] if self.is_common else [system]

    def whiten(
        self, covariance: Tensor, scalar: Tensor, columns: Tensor, centered: Tensor, variances: Tensor
    ) -> tuple[Tensor, Rows]:
        if not self.is_common:
            return super().whiten(covariance, scalar, columns, centered, variances)
        of_all, of_classes = self._factors(covariance, columns, variances)
        white = torch.linalg.solve_triangular(of_all, torch.cat([scalar, centered], dim=-1), upper=False)
        back = torch.linalg.solve_triangular(of_all.mT, white, upper=True)
        inner = torch.linalg.solve_triangular(of_classes, back, upper=False)
        logs = [2.0 * factor.diagonal().log() for factor in (of_all, of_classes)]
        logs[1] = logs[1] + ((self.outside[0] - self.inside[0]) * variances).log()
        labels = columns[:, : self.num_systems].argmax(-1)
        groups = torch.cat([torch.full_like(labels, self.num_systems), labels])
        return grouped_rows(torch.cat([white, inner]), scalar.shape[-1], torch.cat(logs), groups, self.num_groups)

    def weights(self, covariance: Tensor, cross: Tensor, columns: Tensor, variances: Tensor) -> Tensor:
        if not self.is_common:
            return super().weights(covariance, cross, columns, variances)
        of_all, of_classes = self._factors(covariance, columns, variances)
        solved = torch.cholesky_solve(cross.mT, of_all)
        inner = torch.cholesky_solve(solved, of_classes)
        members = columns[..., : self.num_systems].to(covariance)
        by_class = (inner.unsqueeze(-2) * members.unsqueeze(-1)).flatten(-2)
        correction = torch.cholesky_solve(by_class, of_all).unflatten(-1, (self.num_systems, -1))
        return (solved.unsqueeze(-2) + correction).movedim(-3, -1)

    def _factors(self, covariance: Tensor, columns: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
        """The Cholesky factors of A, and of the matrices M of all classes."""
        of_all = factor_of(covariance + torch.diag_embed(self.outside[0] * variances).to(covariance))
        members = columns[..., : self.num_systems].to(covariance)
        inverse = torch.cholesky_inverse(of_all) * (members @ members.mT)
        scale = 1.0 / ((self.outside[0] - self.inside[0]) * variances)
        return of_all, factor_of(torch.diag_embed(scale).to(inverse) - inverse)
