"""Means and standard deviations of training data, which say in what units their parameters are."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from gpytorch.means import Mean
from torch import Tensor

from ..models.target_moments import TargetMoments, target_moments


@dataclass(frozen=True)
class DataMoments:
    """Moments of inputs (..., N, d) and targets, in float64."""

    targets: TargetMoments
    inputs: Tensor

    @functools.cached_property
    def input_mean(self) -> Tensor:
        """The mean of every column of the inputs, (d,)."""
        start, centered = self._centered
        return start + centered.mean(0)

    @functools.cached_property
    def input_scale(self) -> Tensor:
        """Their standard deviations, (d,); one for constant columns."""
        scale = self._centered[1].std(0, correction=0)
        return torch.where(scale > 0, scale, torch.ones_like(scale))

    @property
    def _centered(self) -> tuple[Tensor, Tensor]:
        """The first row, and the rows less that."""
        columns = self.inputs.detach().reshape(-1, self.inputs.shape[-1]).double()
        return columns[0], columns - columns[0]

    @property
    def first_noises(self) -> Tensor:
        """Where noises start, (T,): at a tenth of the variance, and not far below what the function has to explain."""
        return torch.maximum(0.1 * self.targets.variances, 1e-6 * self.targets.function_variances)

    @property
    def mean(self) -> Tensor:
        """The mean of all outputs."""
        return self.targets.means.mean()

    @property
    def variance(self) -> Tensor:
        """The mean variance of the outputs, each around its own mean."""
        return self.targets.variances.mean()

    @property
    def scale(self) -> Tensor:
        """The root of the variance."""
        return self.variance.sqrt()

    def of_output(self, output: int | None) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of one output, or of all together."""
        if output is None or output >= len(self.targets.means):
            return self.mean, self.scale
        return self.targets.means[output], self.targets.variances[output].sqrt()

    def of_log_noise(self) -> DataMoments:
        """Those of the logarithms of noise variances, which start at those of the first noises."""
        level = self.first_noises.log()
        ones = torch.ones_like(level)
        return DataMoments(TargetMoments(level, ones, ones, torch.zeros_like(level)), self.inputs)


def data_moments(x: Tensor, outputs: Tensor, mean: Mean | None = None) -> DataMoments:
    """Moments of inputs (..., N, d) and outputs (N, T), with NaN for missing values, around a first value."""
    return DataMoments(target_moments(outputs, mean, x), x)
