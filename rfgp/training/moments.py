"""Means and standard deviations of training data, which say in what units their parameters are."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_SMALLEST = 1e-150


@dataclass(frozen=True)
class Moments:
    """Moments of inputs and targets, in float64.

    :param output_means: the mean of every output, (T,).
    :param output_variances: the variance of every output, (T,).
    :param input_mean: the mean of every column of the inputs, (d,).
    :param input_scale: their standard deviations, (d,); one for constant columns.
    """

    output_means: Tensor
    output_variances: Tensor
    input_mean: Tensor
    input_scale: Tensor

    @property
    def mean(self) -> Tensor:
        """The mean of all outputs."""
        return self.output_means.mean()

    @property
    def variance(self) -> Tensor:
        """The mean variance of the outputs, each around its own mean."""
        return self.output_variances.mean().clamp_min(_SMALLEST)

    @property
    def scale(self) -> Tensor:
        """The root of the variance."""
        return self.variance.sqrt()

    def of_output(self, output: int | None) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of one output, or of all together.

        :param output: which; default: all.
        """
        if output is None or output >= len(self.output_means):
            return self.mean, self.scale
        return self.output_means[output], self.output_variances[output].clamp_min(_SMALLEST).sqrt()

    def of_log_noise(self) -> Moments:
        """Those of the logarithms of noise variances, which start at a tenth of the variance of every output."""
        level = (0.1 * self.output_variances).clamp_min(_SMALLEST).log()
        return Moments(level, torch.ones_like(level), self.input_mean, self.input_scale)


def moments(x: Tensor, outputs: Tensor) -> Moments:
    """Moments of inputs (..., N, d) and of outputs (N, T), real or complex, with NaN for missing values.

    Everything is taken in float64 around a first value, so that an offset costs no digits.

    :param x: inputs.
    :param outputs: targets.
    """
    columns = x.detach().reshape(-1, x.shape[-1]).double()
    start = columns[0]
    centered = columns - start
    scale = centered.std(0, correction=0)
    values = outputs.detach().to(torch.complex128 if outputs.is_complex() else torch.float64)
    means, variances = zip(*[_of_column(column) for column in values.unbind(-1)], strict=True)
    return Moments(
        torch.stack(means),
        torch.stack(variances),
        start + centered.mean(0),
        torch.where(scale > 0, scale, torch.ones_like(scale)),
    )


def _of_column(column: Tensor) -> tuple[Tensor, Tensor]:
    known = column[~torch.isnan(column)]
    if not len(known):
        return column.real.new_zeros(()), column.real.new_zeros(())
    centered = known - known[0]
    mean = centered.mean()
    return (known[0] + mean).real, (centered - mean).abs().square().mean()
