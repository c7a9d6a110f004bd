"""Regressions of one output on the same rows and features, which differ in their targets and noise variances."""

from __future__ import annotations

import abc
import copy
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Self

import torch
from gpytorch.means import Mean
from torch import Tensor

from ...linalg.cholesky_factor import factor_of, log_determinant_of
from ..noise import NoiseModel
from ..noise.base import residual_columns
from ..posterior.draws import detached
from ..posterior.factor import OutputFactor
from ..posterior.normal_equations import Equations, FewClasses, Group, NormalEquations, WeightedSums
from ..sums.mean_basis import coefficients
from ..sums.rows import Rows
from ..sums.sufficient_statistics import SufficientStatistics
from .prediction import SystemConditioning
from .residual import ResidualProcess

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel
    from .cells import CellKernel
    from .rows import LocalRows


class LocalSystems(abc.ABC):
    r"""S regressions of one output on rows in blocks, on the same features and the same kernel of the residual.

    .. math:: z_{sb} = \Phi_b w_s + r_{sb} + \epsilon_{sb}, \qquad
        C_{sb} = K_b - \Phi_b \Phi_b^\top + \mathrm{diag}(v_{sb})

    One output is one system, every class of labels is one, and so is every output of a separable kernel once they are
    rotated. Rows have columns (N, K) and variances (N,), of which a subclass makes targets and noise variances.

    :param kernel: the scalar kernel.
    :param mean: that of the outputs.
    :param noise: that of the likelihood.
    """

    num_systems: int = 1
    cells_of_point: int = 1
    """The number of inputs that one point of the model is."""
    mixing: Tensor | None = None
    """The outputs as combinations (T, S) of the functions of the systems, None where they are these functions."""

    def __init__(self, kernel: FeatureKernel | CellKernel, mean: Mean, noise: NoiseModel) -> None:
        self.kernel, self.residual = kernel, ResidualProcess(kernel)
        self.mean, self.noise = mean, noise

    # What a kind of systems defines

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

    # From inputs to points of the systems, and from functions to outputs

    def points(self, x: Tensor) -> Tensor:
        """The points (..., n, d) at which the systems have functions, for inputs (..., N, d) of the model."""
        return x

    def outputs(self, functions: Tensor) -> Tensor:
        """The outputs, or classes, (..., N, T), from the functions of the systems at points, (..., S, n)."""
        return functions.mT if self.mixing is None else functions.mT @ self.mixing.mT.to(functions)

    def output_variances(self, variances: Tensor) -> Tensor:
        """Their variances, (..., N, T), from those of the functions, (..., S, n)."""
        return variances.mT if self.mixing is None else variances.mT @ self.mixing.square().mT.to(variances)

    def output_covariance(self, of_system: Callable[[int], Tensor]) -> Tensor:
        """The covariance (N T, N T), rows interleaved, or (C, N, N) of classes, from that of a function, (n, n)."""
        if self.mixing is None:
            return torch.stack([of_system(number) for number in range(self.num_systems)])
        columns = enumerate(self.mixing.mT)
        parts = (torch.kron(of_system(number), column.unsqueeze(-1) * column) for number, column in columns)
        return functools.reduce(torch.add, parts)

    def conditioning(
        self, rows: LocalRows, num_neighbors: int | None, dtype: torch.dtype = torch.float64
    ) -> SystemConditioning:
        """How rows near a point tell of it, with covariances and products of a dtype."""
        return SystemConditioning(self, rows, num_neighbors, dtype)

    # Sums over rows

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

    def with_rotations(self, evidence: Tensor, rows: LocalRows, solved: Callable[[], Tensor]) -> Tensor:
        r"""The evidence with derivatives that the systems do not have one by one.

        :param solved: makes :math:`(\Phi \Phi^\top + R + \Sigma)^{-1} z` of every system, (S, N).
        """
        return evidence


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


class OneOutput(CombinedSystems):
    """Rows with one target each, and a noise variance of their own."""

    def rows(self, x: Tensor, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        return x, rows.targets.double(), self.noise.variances(rows)

    def combinations(self) -> Tensor:
        return residual_columns(coefficients(self.mean, 1, self.residual.root.device)).mT

    def variances(self, columns: Tensor, variances: Tensor) -> Tensor:
        return variances.unsqueeze(-2)


_SMALLEST = 1e-12
"""The smallest variance of a rotated output, relative to the largest."""


class OutputSystems(CombinedSystems):
    r"""Rotated outputs of complete rows, which are independent.

    .. math:: \mathrm{Cov} f = k \otimes \Gamma, \quad \Sigma = L L^\top, \quad
        L^{-1} \Gamma L^{-\top} = V \gamma V^\top, \quad
        Z = (Y - M) L^{-\top} V \gamma^{-1/2}, \quad f = L V \gamma^{1/2} g

    Every column of Z is a regression on a function g with kernel k and noise variance :math:`1 / \gamma_s`.

    :param kernel: the scalar kernel k.
    :param covariance: :math:`\Gamma`, (T, T), in float64.
    :param noise: of one precision for all rows.

    Source: errata, identities 3 and 11 of the last section.
    """

    def __init__(self, kernel: FeatureKernel, covariance: Tensor, mean: Mean, noise: NoiseModel) -> None:
        super().__init__(kernel, mean, noise)
        self.num_systems = len(covariance)
        self.root = factor_of(noise.covariance())
        half = torch.linalg.solve_triangular(self.root, covariance, upper=False)
        self.signal = torch.linalg.solve_triangular(self.root, half.mT, upper=False)
        """Gamma in units of the noise, (T, T)."""
        self.vectors = torch.linalg.eigh(self.signal.detach()).eigenvectors
        values = (self.vectors * (self.signal @ self.vectors)).sum(0)
        self.scales = torch.maximum(values, _SMALLEST * values.detach().max())
        """The variances gamma, (T,); gradients do not run through the rotation."""

    def rows(self, x: Tensor, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        columns = rows.targets.double()
        return x, columns, relative_variances(rows)

    def combinations(self) -> Tensor:
        residual = residual_columns(coefficients(self.mean, self.num_systems, self.root.device))
        return (residual @ self._rotation() / self.scales.sqrt()).mT

    def _rotation(self) -> Tensor:
        return torch.linalg.solve_triangular(self.root.mT, self.vectors, upper=True)

    def variances(self, columns: Tensor, variances: Tensor) -> Tensor:
        return variances.unsqueeze(-2) / self.scales.unsqueeze(-1)

    @property
    def parameters(self) -> list[Tensor]:
        return [*super().parameters, self.scales]

    @property
    def mixing(self) -> Tensor:  # type: ignore[override]
        return self.root @ self.vectors * self.scales.sqrt()

    def log_scale(self, num_rows: float) -> Tensor | float:
        return num_rows * (log_determinant_of(self.root) + self.scales.log().sum())

    def with_rotations(self, evidence: Tensor, rows: LocalRows, solved: Callable[[], Tensor]) -> Tensor:
        r"""The evidence with its derivatives in the signal between rotated outputs, whose value is zero.

        .. math:: \alpha_t^\top K \alpha_u, \qquad \alpha_t = (\gamma_t K + V)^{-1} z_t, \qquad
            K \alpha_u = (z_u - V \alpha_u) / \gamma_u

        with the covariance K of features and residual, and the variances V of rows whose noise is one.
        """
        rotations = self.vectors.mT @ self.signal @ self.vectors
        if not rotations.requires_grad:
            return evidence
        with torch.no_grad():
            root = self.scales.sqrt().unsqueeze(-1)
            alpha, targets = solved() / root, self.targets(rows.columns) * root
            known = (targets - rows.variances * alpha) / self.scales.unsqueeze(-1)
            slopes = alpha @ known.mT
        return evidence + (slopes * rotations).triu(1).sum()
