"""Features without the amplitudes that follow the parameters, so that their sums hold for all parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from ...approximation.random_feature_kernel import RandomFeatureKernel


class PlainFeatures:
    """What is summed in place of the features of a kernel that differ from row to row, such as those of boxes."""

    def __init__(self, kernel: RandomFeatureKernel) -> None:
        self.kernel = kernel

    def of_rows(self, x: Tensor) -> Tensor:
        """The features of rows that are summed, (N, D)."""
        features: Tensor = self.kernel.summed_features(x)
        return features
