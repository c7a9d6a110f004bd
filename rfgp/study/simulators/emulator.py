"""Exact Gaussian processes of all outputs of a simulator, with draws of their parameters, as functions to analyze."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from ...diagnostics.sensitivity.sources import Functions, FunctionSource
from .parameters import learned
from .process import Draws, Process

_NUM_PARAMETERS = 8
"""How many draws of the parameters stand for their posterior."""


class Emulator(FunctionSource):
    r"""The posterior of the functions :math:`f_1, \dots, f_T` that a simulator computes, by runs of it.

    It is the average over draws of the parameters of exact processes, one for each output. The distance of a function
    drawn from the mean is multiplied by the ``spread`` of its output, which calibrates it.

    :param x: runs (N, d), in float64.
    :param y: their outputs (N, T), NaN where a run has none.
    :param generator: the source of random numbers.
    """

    has_outputs = True

    def __init__(self, x: Tensor, y: Tensor, generator: Generator) -> None:
        self.generator = generator
        self.low, self.width = x.amin(0), x.amax(0) - x.amin(0)
        self.offset = y.nanmean(0)
        self.unit = (y - self.offset).square().nanmean(0).sqrt()
        self.has_run = ~y.isnan()
        scaled, standard = self._scaled(x), (y - self.offset) / self.unit
        self.outputs: list[list[Process]] = []
        for column, has_run in zip(standard.mT, self.has_run.mT, strict=True):
            kind, draws = learned(scaled[has_run], column[has_run], _NUM_PARAMETERS, generator)
            self.outputs.append([Process(scaled[has_run], column[has_run], parameters, kind) for parameters in draws])
        self.noise = torch.stack(
            [torch.stack([process.parameters.noise for process in processes]).mean() for processes in self.outputs]
        )
        self.spread = torch.ones_like(self.unit)

    @property
    def bounds(self) -> Tensor:
        return torch.stack([self.low, self.low + self.width])

    def _scaled(self, x: Tensor) -> Tensor:
        return (x.double().cpu() - self.low) / self.width

    @torch.no_grad()
    def functions(self, num_functions: int) -> list[Functions]:
        each = -(-num_functions // _NUM_PARAMETERS)
        by_parameters = zip(*self.outputs, strict=True)
        return [
            self._in_units(
                [
                    Draws(process, each, float(spread), self.generator)
                    for process, spread in zip(processes, self.spread, strict=True)
                ]
            )
            for processes in by_parameters
        ]

    def _in_units(self, draws: Sequence[Draws]) -> Functions:
        @torch.no_grad()
        def values(x: Tensor) -> Tensor:
            scaled = self._scaled(x)
            by_output = torch.stack([functions(scaled) for functions in draws], dim=-1)
            return (self.offset + self.unit * by_output).flatten(-2)

        return values

    @torch.no_grad()
    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scaled = self._scaled(x)
        mean, variance = torch.empty(2, len(x), len(self.outputs), dtype=torch.float64)
        for t, processes in enumerate(self.outputs):
            parts = [(process.mean(scaled), process.variance(scaled)) for process in processes]
            mean[:, t], variance[:, t] = self._mixed(parts, t)
        return mean, variance

    @torch.no_grad()
    def left_out(self) -> tuple[Tensor, Tensor]:
        """Means and variances (N, T) of every run by the others, noise included; NaN where there is no run."""
        mean, variance = torch.full((2, *self.has_run.shape), torch.nan, dtype=torch.float64)
        for t, (processes, has_run) in enumerate(zip(self.outputs, self.has_run.mT, strict=True)):
            mean[has_run, t], variance[has_run, t] = self._mixed([process.left_out() for process in processes], t)
        return mean, variance

    @torch.no_grad()
    def covariances(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior covariances (T, M, M) at x (M, d), and noise variances (T,), of standardized outputs."""
        scaled, squares = self._scaled(x), self.spread.square()
        covariance = torch.stack([processes[0].covariance(scaled) for processes in self.outputs])
        return squares[:, None, None] * covariance, squares * self.noise

    def _mixed(self, moments: Sequence[tuple[Tensor, Tensor]], t: int) -> tuple[Tensor, Tensor]:
        """The mean and the variance of an equal mixture of processes, in the units of the output t."""
        means, variances = (torch.stack(parts) for parts in zip(*moments, strict=True))
        variance = self.spread[t].square() * variances.mean(0) + means.var(0, correction=0)
        return self.offset[t] + self.unit[t] * means.mean(0), self.unit[t].square() * variance
