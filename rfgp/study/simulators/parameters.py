"""The parameters of a process: the most probable ones, and draws of what else the runs allow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from ...averaging import most_probable, parameter_draws
from ...averaging.parameter_draws import Floats
from ...training.stationary import GaussianLogDensity
from .process import KINDS, Kind, Parameters, covariance

_MOST_ROWS = 500
"""Rows that parameters are learned from; all others are predicted with, too."""
_MOST_STEPS, _MOST_STEPS_FROM_NEAR = 150, 10


class RunsLogPosterior:
    """The log evidence of runs plus log normal priors of the parameters, as a function of their vector."""

    def __init__(self, x: Tensor, y: Tensor, kind: Kind, generator: Generator) -> None:
        rows = torch.randperm(len(x), generator=generator)[:_MOST_ROWS]
        self.x, self.y, self.kind = x[rows], y[rows], kind
        dim = x.shape[-1]
        self.center = torch.cat(
            [_full(dim, 0.2 + 0.5 * math.log(dim)), _full(2, 0.0), _full(dim, -0.5), _full(dim, -2.0)]
        )
        self.center[dim + 1] = -12.0
        self.width = torch.cat([_full(dim, math.sqrt(3.0)), _full(2, 3.0), _full(dim, 1.0), _full(dim, 3.0)])
        self.width[dim + 1] = 5.0
        self.bounds = [(-4.0, 6.0)] * dim + [(-9.0, 7.0), (-18.0, 1.0)] + [(-4.0, 6.0)] * dim + [(-9.0, 7.0)] * dim

    @property
    def start(self) -> Floats:
        """Where the search for the most probable parameters begins."""
        start, dim = self.center.numpy().copy(), self.x.shape[-1]
        start[:dim], start[dim + 1], start[2 * dim + 2 :] = 0.5 * math.log(dim), -9.0, -1.0
        return start

    def __call__(self, vector: Tensor) -> Tensor:
        parameters = Parameters(vector)
        matrix = covariance(self.x, self.x, parameters, self.kind)
        evidence: Any = GaussianLogDensity.apply(matrix, parameters.noise.reshape(1), self.y)
        return evidence - 0.5 * ((vector - self.center) / self.width).square().sum()

    @torch.enable_grad()
    def loss(self, vector: Floats, has_gradient: bool = True) -> tuple[float, Floats]:
        """Minus the log density and its gradient."""
        leaf = torch.from_numpy(np.array(vector)).requires_grad_(has_gradient)
        try:
            value = -self(leaf)
        except (ValueError, RuntimeError):  # a matrix that is not positive definite
            return math.inf, np.zeros_like(vector)
        gradient = torch.autograd.grad(value, leaf)[0].numpy() if has_gradient else np.zeros_like(vector)
        return float(value.detach()), gradient


class Near:
    """The same density by steps from known parameters, in units of what is not known of them."""

    def __init__(self, log_posterior: RunsLogPosterior, best: Tensor, root: Tensor) -> None:
        self.log_posterior, self.best, self.root = log_posterior, best.numpy(), root.numpy()
        self.bounds = [(-math.inf, math.inf)] * len(best)

    def loss(self, vector: Floats, has_gradient: bool = True) -> tuple[float, Floats]:
        """Minus the log density and its gradient."""
        value, gradient = self.log_posterior.loss(self.best + self.root @ vector, has_gradient)
        return value, gradient @ self.root


@dataclass(frozen=True)
class LearnedParameters:
    """What runs tell about the parameters of their process.

    :param kind: the kernel.
    :param vectors: draws of the parameters, (S, p), the most probable ones first.
    :param root: a square root of the covariance of their normal approximation, (p, p).
    """

    kind: Kind
    vectors: Tensor
    root: Tensor

    @property
    def parameters(self) -> list[Parameters]:
        """The draws."""
        return [Parameters(vector) for vector in self.vectors]

    def from_other_runs(self, x: Tensor, y: Tensor, generator: Generator) -> LearnedParameters:
        """What other runs tell, which are most of the same: the draws move by what the most probable parameters do.

        These are found from those that are known, in units of what is not known of them, in a few steps.
        """
        near = Near(RunsLogPosterior(x, y, self.kind, generator), self.vectors[0], self.root)
        steps = torch.from_numpy(most_probable(near, np.zeros(len(self.root)), _MOST_STEPS_FROM_NEAR).vector)
        return LearnedParameters(self.kind, self.vectors + self.root @ steps, self.root)


def learned(x: Tensor, y: Tensor, count: int, generator: Generator) -> LearnedParameters:
    """The kernel of the largest posterior density, and draws of its parameters."""
    posteriors = [RunsLogPosterior(x, y, kind, generator) for kind in KINDS]
    modes = [most_probable(log_posterior, log_posterior.start, _MOST_STEPS) for log_posterior in posteriors]
    mode, log_posterior = min(zip(modes, posteriors, strict=True), key=lambda pair: pair[0].loss)
    seed = int(torch.randint(2**31, (1,), generator=generator))
    draws, root = parameter_draws(log_posterior, mode.vector, count - 1, seed=seed)
    vectors = torch.from_numpy(np.concatenate([mode.vector[None], draws]))
    return LearnedParameters(log_posterior.kind, vectors, torch.from_numpy(root))


def _full(count: int, value: float) -> Tensor:
    return torch.full((count,), value, dtype=torch.float64)
