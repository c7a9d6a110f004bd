"""Exact Gaussian processes of all outputs of a simulator, with draws of their parameters, as functions to analyze."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from ...diagnostics.sensitivity.sources import Functions, FunctionSource
from .beyond import Beyond
from .draws import Draws
from .failures import Failures
from .left_out import left_out
from .limits import Limits
from .parameters import LearnedParameters, learned
from .process import Process

_NUM_PARAMETERS = 8
"""How many draws of the parameters stand for their posterior."""


class Emulator(FunctionSource):
    r"""The posterior of the functions :math:`f_1, \dots, f_T` that a simulator computes, by runs of it.

    It is the average over draws of the parameters of exact processes, one for each output. The distance of a function
    drawn from the mean is multiplied by the ``spread`` of its output, which calibrates it. Beyond the runs functions go
    on as at their edge. They are clipped to the ``limits`` of outputs, and ``failures`` says where runs have none.

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
        self.has_run, self.limits = ~y.isnan(), Limits.of(y)
        scaled, standard = self._scaled(x), (y - self.offset) / self.unit
        self.learned: list[LearnedParameters] = []
        self.outputs: list[list[Process]] = []
        for column, has_run in zip(standard.mT, self.has_run.mT, strict=True):
            runs = scaled[has_run], column[has_run]
            known = learned(*runs, _NUM_PARAMETERS, generator)
            self.learned.append(known)
            self.outputs.append([Process(*runs, parameters, known.kind) for parameters in known.parameters])
        self.noise = torch.stack(
            [torch.stack([process.parameters.noise for process in processes]).mean() for processes in self.outputs]
        )
        self.spread = torch.ones_like(self.unit)
        self.failures = Failures(scaled, self.has_run, generator)

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
            return self.limits.clipped(self.offset + self.unit * by_output).flatten(-2)

        return values

    @torch.no_grad()
    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        means, variances = self._by_parameters(x)
        return _mixed(*self.limits.moments(means, variances))

    @torch.no_grad()
    def predicted(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances (M, T) of outputs at x (M, d): those of the functions, and the noise.

        A simulator that gives the same output twice has no noise. What the kernel does not explain of its function is
        learned as such, and belongs to what is not known of an output.
        """
        means, variances = self._by_parameters(x)
        noises = torch.stack([torch.stack([one.parameters.noise for one in each]) for each in self.outputs], dim=-1)
        scales = (self.unit * self.spread).square()
        return _mixed(*self.limits.moments(means, variances + (scales * noises).unsqueeze(-2)))

    @torch.no_grad()
    def success(self, x: Tensor) -> Tensor:
        """The probabilities (M, T) that runs at x (M, d) have outputs."""
        return self.failures.success(self._scaled(x))

    @torch.no_grad()
    def inside(self, x: Tensor) -> Tensor:
        """The shares (M, T) of the variances at x (M, d) that are left inside the limits of the outputs."""
        means, variances = self._by_parameters(x)
        left = self.limits.moments(means, variances)[1].mean(0)
        return torch.where(self.limits.low.isinf() & self.limits.high.isinf(), 1.0, left / variances.mean(0))

    @torch.no_grad()
    def left_out(self) -> tuple[Tensor, Tensor]:
        """Means and variances (N, T) of every run by others, noise included; NaN where there is no run.

        They are not clipped to the limits, and not widened.
        """
        mean, variance = torch.full((2, *self.has_run.shape), torch.nan, dtype=torch.float64)
        for t, ((process, *_), known, has_run) in enumerate(
            zip(self.outputs, self.learned, self.has_run.mT, strict=True)
        ):
            moments = zip(*left_out(process.x, process.y, known, self.generator), strict=True)
            mean[has_run, t], variance[has_run, t] = _mixed(*self._in_units_of(t, list(moments)))
        return mean, variance

    @torch.no_grad()
    def covariances(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior covariances (T, M, M) at x (M, d), and noise variances (T,), of standardized outputs."""
        beyond, most_probable = Beyond(self._scaled(x)), [processes[0] for processes in self.outputs]
        scales = zip(most_probable, self.spread.tolist(), strict=True)
        covariance = torch.stack([beyond.covariance(process, scale) for process, scale in scales])
        return covariance, self.spread.square() * self.noise

    def _by_parameters(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances (P, M, T) at x (M, d) for each draw of the parameters."""
        beyond = Beyond(self._scaled(x))
        parts = [
            self._in_units_of(t, [beyond.moments(process, float(self.spread[t])) for process in processes])
            for t, processes in enumerate(self.outputs)
        ]
        means, variances = (torch.stack(part, dim=-1) for part in zip(*parts, strict=True))
        return means, variances

    def _in_units_of(self, t: int, moments: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Moments (P, M) of standardized values in the units of the output t."""
        means, variances = (torch.stack(parts) for parts in zip(*moments, strict=True))
        return self.offset[t] + self.unit[t] * means, self.unit[t].square() * variances


def _mixed(means: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the variance of an equal mixture, of the first dimension."""
    return means.mean(0), variances.mean(0) + means.var(0, correction=0)
