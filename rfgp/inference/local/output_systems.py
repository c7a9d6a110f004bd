"""The outputs of a separable kernel as systems of rows in blocks, after a rotation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from gpytorch.means import Mean
from torch import Tensor

from ...linalg.cholesky_factor import factor_of, log_determinant_of
from ..noise import NoiseModel
from ..noise.base import residual_columns
from ..sums.mean_basis import coefficients
from ..sums.rows import Rows
from .systems import CombinedSystems, relative_variances

if TYPE_CHECKING:
    from ...approximation.random_feature_kernel import RandomFeatureKernel

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

    def __init__(self, kernel: RandomFeatureKernel, covariance: Tensor, mean: Mean, noise: NoiseModel) -> None:
        super().__init__(kernel)
        self.mean, self.num_systems = mean, len(covariance)
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
    def mixing(self) -> Tensor:
        """The outputs as combinations (T, S) of the functions of the systems."""
        return self.root @ self.vectors * self.scales.sqrt()

    def log_scale(self, num_rows: float) -> Tensor | float:
        return num_rows * (log_determinant_of(self.root) + self.scales.log().sum())

    def rotations(self) -> Tensor:
        """The signal between rotated outputs, (S, S): its diagonal are the scales, its value is zero elsewhere."""
        return self.vectors.mT @ self.signal @ self.vectors
