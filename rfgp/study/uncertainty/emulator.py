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
    :param y: their outputs (N, T).
    :param generator: the source of random numbers.
    """

    has_outputs = True

    def __init__(self, x: Tensor, y: Tensor, generator: Generator) -> None:
        self.x, self.generator = x, generator
        self.low, self.width = x.amin(0), x.amax(0) - x.amin(0)
        self.offset, self.unit = y.mean(0), y.std(0)
        scaled = self._scaled(x)
        self.outputs: list[list[Process]] = []
        for column in ((y - self.offset) / self.unit).mT:
            kind, draws = learned(scaled, column, _NUM_PARAMETERS, generator)
            self.outputs.append([Process(scaled, column, parameters, kind) for parameters in draws])
        self.spread = torch.ones_like(self.unit)

    @property
    def bounds(self) -> Tensor:
        return torch.stack([self.low, self.low + self.width])

    def _scaled(self, x: Tensor) -> Tensor:
        return (x.double().cpu() - self.low) / self.width

    @torch.no_grad()
    def functions(self, num_functions: int) -> list[Functions]:
        each = -(-num_functions // _NUM_PARAMETERS)
        return [
            self._in_units([Draws(process, each, float(spread), self.generator) for process, spread in pairs])
            for pairs in (zip(processes, self.spread, strict=True) for processes in zip(*self.outputs, strict=True))
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
        mean, variance = self._mixed(
            [[(process.mean(scaled), process.variance(scaled)) for process in processes] for processes in self.outputs]
        )
        return mean, variance * self.spread.square()

    @torch.no_grad()
    def left_out(self) -> tuple[Tensor, Tensor]:
        """Means and variances (N, T) of every run by the others, noise included, before calibration."""
        return self._mixed([[process.left_out() for process in processes] for processes in self.outputs])

    def _mixed(self, parts: Sequence[Sequence[tuple[Tensor, Tensor]]]) -> tuple[Tensor, Tensor]:
        """Moments (N, T) of equal mixtures, in the units of the outputs."""
        means, variances = (
            torch.stack([torch.stack([pair[i] for pair in processes]) for processes in parts], dim=-1) for i in (0, 1)
        )
        variance = variances.mean(0) + means.var(0, correction=0)
        return self.offset + self.unit * means.mean(0), self.unit.square() * variance
