"""Means and standard deviations of training data, which say in what units their parameters are."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from gpytorch.means import Mean
from torch import Tensor

from ..models.target_moments import TargetMoments, target_moments


@dataclass(frozen=True)
class DataMoments:
    """Moments of inputs and targets, in float64.

    :param input_mean: the mean of every column of the inputs, (d,).
    :param input_scale: their standard deviations, (d,); one for constant columns.
    """

    targets: TargetMoments
    input_mean: Tensor
    input_scale: Tensor

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
        return DataMoments(TargetMoments(level, ones, ones, torch.zeros_like(level)), self.input_mean, self.input_scale)


def data_moments(x: Tensor, outputs: Tensor, mean: Mean | None = None) -> DataMoments:
    """Moments of inputs (..., N, d) and outputs (N, T), with NaN for missing values, around a first value."""
    columns = x.detach().reshape(-1, x.shape[-1]).double()
    start = columns[0]
    centered = columns - start
    scale = centered.std(0, correction=0)
    return DataMoments(
        target_moments(outputs, mean, x),
        start + centered.mean(0),
        torch.where(scale > 0, scale, torch.ones_like(scale)),
    )
