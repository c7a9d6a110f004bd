"""One output as the one system of rows in blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpytorch.means import Mean
from torch import Tensor

from ..noise import NoiseModel
from ..noise.base import residual_columns
from ..sums.mean_basis import coefficients
from ..sums.rows import Rows
from .systems import CombinedSystems

if TYPE_CHECKING:
    from ...approximation.random_feature_kernel import RandomFeatureKernel


class OneOutput(CombinedSystems):
    """Rows with one target each, and a noise variance of their own."""

    def __init__(self, kernel: RandomFeatureKernel, mean: Mean, noise: NoiseModel) -> None:
        super().__init__(kernel)
        self.mean, self.noise = mean, noise

    def rows(self, x: Tensor, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        return x, rows.targets.double(), self.noise.variances(rows)

    def combinations(self) -> Tensor:
        return residual_columns(coefficients(self.mean, 1, self.residual.root.device)).mT

    def variances(self, columns: Tensor, variances: Tensor) -> Tensor:
        return variances.unsqueeze(-2)
