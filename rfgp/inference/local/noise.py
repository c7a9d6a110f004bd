"""The noise of rows that were whitened block by block."""

from __future__ import annotations

import torch
from torch import Tensor

from ..noise import NoiseModel
from ..noise.targets import Observations
from ..sums.rows import Rows
from ..sums.sufficient_statistics import SufficientStatistics


class WhitenedNoise(NoiseModel):
    """Noise of unit variance, in which that of a likelihood and the residual of features are contained."""

    def __init__(self, noise: NoiseModel) -> None:
        super().__init__(noise.targets)
        self.noise = noise

    def observations(self, x: Tensor, y: Tensor, noise: Tensor | None, basis: Tensor, is_all: bool) -> Observations:
        return self.noise.observations(x, y, noise, basis, is_all)

    def rows_of(self, observations: Observations) -> Rows:
        return self.noise.weigh(observations._replace(weights=None))

    def precisions(self, num_groups: int) -> list[Tensor | None]:
        return [None if p is None else torch.ones_like(p) for p in self.noise.precisions(num_groups)]

    def log_noise(self, statistics: SufficientStatistics) -> Tensor:
        return statistics.log_noise.sum()

    def smallest(self, rows: Rows) -> float:
        return self.noise.smallest(rows)

    def variances(self, rows: Rows) -> Tensor:
        return self.noise.variances(rows)
