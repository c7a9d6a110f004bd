"""Regressions of one output on the same rows and features, which differ in their targets and noise variances."""

from __future__ import annotations

import abc
import copy
import functools
from collections.abc import Iterator
from typing import Any, Self

import torch
from torch import Tensor

from ...linalg.cholesky_factor import factor_of
from ..posterior.class_equations import FewClasses
from ..posterior.draws import detached
from ..posterior.factor import OutputFactor
from ..posterior.normal_equations import Equations, Group, NormalEquations, WeightedSums
from ..sums.rows import Rows
from ..sums.sufficient_statistics import SufficientStatistics
from .residual import ResidualProcess


class LocalSystems(abc.ABC):
    r"""S regressions of one output on rows in blocks, on the same features and the same kernel of the residual.

    .. math:: z_{sb} = \Phi_b w_s + r_{sb} + \epsilon_{sb}, \qquad
        C_{sb} = K_b - \Phi_b \Phi_b^\top + \mathrm{diag}(v_{sb})

    One output is one system, every class of labels is one, and so is every output of a separable kernel once they are
    rotated. Rows have columns (N, K) and variances (N,), of which a subclass makes targets and noise variances.

    :param kernel: the scalar kernel.
    """

    num_systems: int = 1
    cells_of_point: int = 1
    """The number of inputs that one point of the model is."""

    def __init__(self, kernel: Any) -> None:
        self.kernel, self.residual = kernel, ResidualProcess(kernel)

    @abc.abstractmethod
    def rows(self, x: Tensor, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """The inputs, the columns (N, K) and the variances (N,) of checked rows, the latter two in float64."""

    @abc.abstractmethod
    def targets(self, columns: Tensor) -> Tensor:
        """The targets (..., S, n) of rows with columns (..., n, K), less their means."""

    @abc.abstractmethod
    def target_sums(self, statistics: SufficientStatistics) -> tuple[Tensor, Tensor]:
        """The products of features with the targets of systems, (S, D), and those of targets with themselves, (S,)."""

    @abc.abstractmethod
    def variances(self, columns: Tensor, variances: Tensor) -> Tensor:
        """The noise variances (..., S, n) of rows with columns (..., n, K) and variances (..., n)."""

    def input_scales(self, scales: Tensor) -> Tensor:
        """The scales of its inputs, from those of the model's, (d,) or (d, r)."""
        return scales

    @property
    def parameters(self) -> list[Tensor]:
        """What the sums depend on beside the rows."""
        return [*self.kernel.parameters()]

    def relative_noise(self, columns: Tensor, variances: Tensor, x: Tensor) -> float:
        """The smallest noise variance of rows, relative to the prior variance at inputs (n, d)."""
        scale = self.kernel.exact_kernel(x, diag=True).max()
        return float(self.variances(columns, variances).min() / scale)

    @property
    def num_groups(self) -> int:
        """The number of groups of the sums."""
        return self.num_systems

    def groups(self, system: int) -> list[int]:
        """The groups of rows whose sums make those of a system."""
        return [system]

    def center(self, columns: Tensor) -> Tensor:
        """What is subtracted from the columns (N, K) before they are summed, (K,)."""
        return columns.mean(0)

    def whitened(self, x: Tensor, rows: Rows, shift: Tensor) -> tuple[Tensor, Rows]:
        """The features and the rows of one block, whitened, for inputs (n, d) and a shift (K,) of the columns."""
        scalar = self.residual.scalar_features(x)
        covariance = self.residual.covariance(x, self.residual.root * scalar)
        variances = 1.0 / rows.all_weights()[:, 0]
        return self.whiten(covariance, scalar, rows.targets, shift, variances)

    def whiten(
        self, covariance: Tensor, scalar: Tensor, columns: Tensor, shift: Tensor, variances: Tensor
    ) -> tuple[Tensor, Rows]:
        """Features and rows of a block for every system, by groups.

        :param covariance: that of the residual, (n, n).
        :param scalar: features without the output scale, (n, D).
        :param shift: what is subtracted from the columns (n, K), (K,); behind them is one of ones.
        """
        factor = factor_of(covariance + torch.diag_embed(self.variances(columns, variances)))
        block = torch.cat([scalar, Rows(columns).with_ones(shift)], dim=-1).expand(len(factor), -1, -1)
        white = torch.linalg.solve_triangular(factor, block, upper=False)
        groups = torch.arange(len(factor), device=scalar.device).repeat_interleave(len(scalar))
        logs = 2.0 * factor.diagonal(dim1=-2, dim2=-1).log()
        return grouped_rows(white.flatten(0, 1), scalar.shape[-1], logs.flatten(), groups, self.num_groups)

    def weights(self, covariance: Tensor, cross: Tensor, columns: Tensor, variances: Tensor) -> Tensor:
        r"""The weights :math:`R_{*n} C_s^{-1}`, (..., S, t, m), of rows at t points, for every system.

        :param covariance: that of the residual of the rows, (..., m, m).
        :param cross: that between points and rows, (..., t, m).
        """
        noise = torch.diag_embed(self.variances(columns, variances)).to(covariance)
        factor = factor_of(covariance.unsqueeze(-3) + noise)
        rhs = cross.mT.unsqueeze(-3).expand(*factor.shape[:-1], cross.shape[-2])
        return torch.cholesky_solve(rhs, factor).mT

    def equations(self, statistics: SufficientStatistics, factor: OutputFactor) -> Equations:
        """The normal equations of all systems."""
        return FewClasses(functools.partial(self._one_by_one, statistics, factor), self.num_systems)

    def _one_by_one(self, statistics: SufficientStatistics, factor: OutputFactor) -> Iterator[NormalEquations]:
        cross, quadratic = self.target_sums(statistics)
        gram, log_noise, one = statistics.gram, statistics.log_noise, cross.new_ones(1, 1)
        for system in range(self.num_systems):
            groups = self.groups(system)
            grams, of_targets = [Group(one, gram[group]) for group in groups], cross[system][:, None, None]
            yield NormalEquations(WeightedSums(grams, of_targets, quadratic[system], log_noise[groups].sum()), factor)

    def detached(self) -> Self:
        """The same systems of a kernel whose parameters are the leaves of graphs of their own."""
        twin = copy.copy(self)
        twin.kernel = detached(self.kernel)
        twin.residual = ResidualProcess(twin.kernel)
        return twin

    def log_scale(self, num_rows: float) -> Tensor | float:
        """What the scales of targets add to the log determinant of the noise of all systems."""
        return 0.0


class CombinedSystems(LocalSystems):
    """Systems whose targets are combinations of the columns, each with a group of its own."""

    @abc.abstractmethod
    def combinations(self) -> Tensor:
        """Targets of the systems less their means, as combinations (S, K) of the columns."""

    def targets(self, columns: Tensor) -> Tensor:
        return self.combinations() @ columns.mT

    def target_sums(self, statistics: SufficientStatistics) -> tuple[Tensor, Tensor]:
        combinations = self.combinations().unsqueeze(-1)
        cross, squares = statistics.targets.of_combination(combinations)
        return cross.squeeze(-1), squares.flatten()


def grouped_rows(
    white: Tensor, num_features: int, log_noise: Tensor, groups: Tensor | None, num_groups: int
) -> tuple[Tensor, Rows]:
    """Whitened features and rows (m, D + K + 1) that belong to groups, (m,)."""
    features, targets = white.split([num_features, white.shape[-1] - num_features], dim=-1)
    groups = None if num_groups == 1 else groups
    return features, Rows(targets, log_noise=log_noise, groups=groups, num_groups=num_groups, has_ones=True)


def relative_variances(rows: Rows) -> Tensor:
    """The noise variances of rows (N,) relative to those of a row of weight one."""
    if rows.weights is None:
        return torch.ones(len(rows.targets), dtype=torch.float64, device=rows.targets.device)
    return 1.0 / rows.weights.double()
