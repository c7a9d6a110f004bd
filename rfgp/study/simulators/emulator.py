"""Averages of exact Gaussian processes for all outputs of a simulator, as functions to analyze."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Generator, Tensor

from ...averaging import AveragedGP
from ...diagnostics.sensitivity.sources import Functions, FunctionSource
from .beyond import Beyond, factors
from .failures import Failures
from .limits import Limits
from .one_output import mixed, output_function
from .random_order import in_random_order


class Emulator(FunctionSource):
    r"""The posterior of the functions :math:`f_1, \dots, f_T` that a simulator computes, by runs of it.

    Each output has an :class:`~rfgp.averaging.AveragedGP`, of which exact processes with single draws of the parameters
    stand for all. The distance of a function drawn from the mean is multiplied by the ``spread`` of its output, which
    calibrates it. Beyond the runs functions go on as at their edge. They are clipped to the ``limits`` of outputs,
    beyond which they go on where that predicts better, and ``failures`` says where runs have none.

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
        self.has_run, limits = ~y.isnan(), Limits.of(y)
        scaled, standard = self._scaled(x), (y - self.offset) / self.unit
        low, high = ((bounds - self.offset) / self.unit for bounds in (limits.low, limits.high))
        self.rows = [
            has_run.nonzero().flatten()[in_random_order(column[has_run])]
            for column, has_run in zip(standard.mT, self.has_run.mT, strict=True)
        ]
        self.outputs = [
            output_function(scaled[rows], standard[rows, t], low[t], high[t], generator)
            for t, rows in enumerate(self.rows)
        ]
        self.limits = replace(limits, cuts_off=tuple(output.is_cut_off for output in self.outputs))
        self.spread = torch.ones_like(self.unit)
        self.failures = Failures(scaled, self.has_run)

    @property
    def bounds(self) -> Tensor:
        return torch.stack([self.low, self.low + self.width])

    def _scaled(self, x: Tensor) -> Tensor:
        return (x.double().cpu() - self.low) / self.width

    @torch.no_grad()
    def functions(self, num_functions: int) -> list[Functions]:
        by_parameters = [*zip(*(output.processes for output in self.outputs), strict=True)]
        return [self._in_units(processes, -(-num_functions // len(by_parameters))) for processes in by_parameters]

    def _in_units(self, processes: Sequence[AveragedGP], count: int) -> Functions:
        """The mean and functions drawn from a process of each output."""
        drawn = [process.draw_functions(count, self.generator)[0] for process in processes]
        of_sides = [factors(len(self.low), count, self.generator) for _ in drawn]

        @torch.no_grad()
        def values(x: Tensor) -> Tensor:
            beyond, found = Beyond(self._scaled(x)), []
            for functions, on_sides, scale in zip(drawn, of_sides, self.spread.tolist(), strict=True):

                def spread(at: Tensor, functions: Functions = functions, scale: float = scale) -> Tensor:
                    inside = functions(at).squeeze(-1)
                    return torch.cat([inside[:, :1], inside[:, :1] + scale * (inside[:, 1:] - inside[:, :1])], dim=-1)

                found.append(beyond.values(spread, on_sides))
            return self.limits.clipped(self.offset + self.unit * torch.stack(found, dim=-1)).flatten(-2)

        return values

    @torch.no_grad()
    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return mixed(*self.limits.moments(*self._by_parameters(x)))

    @torch.no_grad()
    def predicted(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances (M, T) of outputs at x (M, d): those of the functions, and the noise.

        A simulator that gives the same output twice has no noise. What the kernel does not explain of its function is
        learned as such, and belongs to what is not known of an output.
        """
        means, variances = self._by_parameters(x)
        return mixed(*self.limits.moments(means, variances + self.unit.square() * self._noises(x)))

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
        for t, (rows, output) in enumerate(zip(self.rows, self.outputs, strict=True)):
            mean[rows, t], variance[rows, t] = output.left_out
        return self.offset + self.unit * mean, self.unit.square() * variance

    @torch.no_grad()
    def covariances(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior covariances (T, M, M), and noise variances (T, M), of standardized outputs at x (M, d)."""
        beyond, found = Beyond(self._scaled(x)), []
        for output, scale in zip(self.outputs, self.spread.tolist(), strict=True):
            means = torch.stack([beyond.moments(process, scale)[0] for process in output.processes])
            within = torch.stack([beyond.covariance(process, scale) for process in output.processes])
            found.append(within.mean(0) + means.mT.cov(correction=0))
        return torch.stack(found), self._noises(x).mean(0).mT

    def _by_parameters(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances (P, M, T) of the functions at x (M, d) for each draw of the parameters."""
        beyond, parts = Beyond(self._scaled(x)), []
        for output, scale in zip(self.outputs, self.spread.tolist(), strict=True):
            moments = [beyond.moments(process, scale) for process in output.processes]
            parts.append([torch.stack(part) for part in zip(*moments, strict=True)])
        means, variances = (torch.stack(part, dim=-1) for part in zip(*parts, strict=True))
        return self.offset + self.unit * means, self.unit.square() * variances

    def _noises(self, x: Tensor) -> Tensor:
        """Noise variances (P, M, T) of standardized outputs at x (M, d) for each draw of the parameters."""
        edge = Beyond(self._scaled(x)).edge
        by_output = [
            torch.stack([one.predictive(edge).variance - one.function(edge).variance for one in output.processes])
            for output in self.outputs
        ]
        return self.spread.square() * torch.stack(by_output, dim=-1).clamp_min(0.0)
