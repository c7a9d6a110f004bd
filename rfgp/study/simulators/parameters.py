"""The parameters of a process: the most probable ones, and draws of what else the runs allow."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
import torch
from torch import Generator, Tensor

from ...training.stationary import GaussianLogDensity
from .process import KINDS, Kind, Parameters, covariance

_PROPOSALS, _DEGREES = 256, 6
_LEAST_CURVATURE = 0.05
_STEP = 1e-3
_MOST_ROWS = 500
"""Rows that parameters are learned from; all others are predicted with, too."""
_MOST_STEPS, _MOST_STEPS_FROM_NEAR = 150, 10
_WEAK = 1e10
"""What stands for the log density of parameters that have none."""


class LogPosterior:
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

    def __call__(self, vector: Tensor) -> Tensor:
        parameters = Parameters(vector)
        matrix = covariance(self.x, self.x, parameters, self.kind)
        evidence: Any = GaussianLogDensity.apply(matrix, parameters.noise.reshape(1), self.y)
        return evidence - 0.5 * ((vector - self.center) / self.width).square().sum()

    @torch.enable_grad()
    def loss(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the log density and its gradient."""
        leaf = torch.from_numpy(np.array(vector)).requires_grad_()
        try:
            value = -self(leaf)
        except (ValueError, RuntimeError):  # a matrix that is not positive definite
            return _WEAK, np.zeros_like(vector)
        (gradient,) = torch.autograd.grad(value, leaf)
        return float(value.detach()), gradient.numpy()


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
        log_posterior, best = LogPosterior(x, y, self.kind, generator), self.vectors[0]

        def loss(steps: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = log_posterior.loss((best + self.root @ torch.from_numpy(steps)).numpy())
            return value, gradient @ self.root.numpy()

        steps, _ = _minimum(loss, np.zeros(len(best)), _MOST_STEPS_FROM_NEAR)
        return LearnedParameters(self.kind, self.vectors + self.root @ steps, self.root)


def learned(x: Tensor, y: Tensor, count: int, generator: Generator) -> LearnedParameters:
    """The kernel of the largest posterior density, and draws of its parameters."""
    found = [(*_most_probable(LogPosterior(x, y, kind, generator)), kind) for kind in KINDS]
    best, _, kind = max(found, key=lambda entry: entry[1])
    log_posterior = LogPosterior(x, y, kind, generator)
    values, directions = torch.linalg.eigh(_curvature(log_posterior, best))
    root = directions * values.clamp_min(_LEAST_CURVATURE).rsqrt()
    draws = [_drawn(log_posterior, best, root, count - 1, generator)] if count > 1 else []
    return LearnedParameters(kind, torch.cat([best.unsqueeze(0), *draws]), root)


def _most_probable(log_posterior: LogPosterior) -> tuple[Tensor, float]:
    """The most probable parameters, and their log density."""
    start = log_posterior.center.clone()
    dim = log_posterior.x.shape[-1]
    start[:dim], start[dim + 1], start[2 * dim + 2 :] = 0.5 * math.log(dim), -9.0, -1.0
    best, loss = _minimum(log_posterior.loss, start.numpy(), _MOST_STEPS, log_posterior.bounds)
    return best, -loss


def _minimum(
    loss: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    most_steps: int,
    bounds: list[tuple[float, float]] | None = None,
) -> tuple[Tensor, float]:
    """Where L-BFGS finds a loss, which has its gradient, to be least, and the loss there."""
    found = scipy.optimize.minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": most_steps}
    )
    return torch.from_numpy(found.x), float(found.fun)


@torch.no_grad()
def _drawn(log_posterior: LogPosterior, best: Tensor, root: Tensor, count: int, generator: Generator) -> Tensor:
    """Draws (count, p) of the parameters: Student's t at the mode, resampled by importance.

    Source: Tierney and Kadane (1986), normal approximation at the mode; Rubin (1988), importance resampling.
    """
    size = len(best)
    normal = torch.randn(_PROPOSALS, size, generator=generator, dtype=torch.float64)
    square = torch.randn(_PROPOSALS, _DEGREES, generator=generator, dtype=torch.float64).square().sum(-1)
    steps = normal * (_DEGREES / square).sqrt().unsqueeze(-1)
    proposals = best + steps @ root.mT
    log_proposal = -0.5 * (_DEGREES + size) * torch.log1p(steps.square().sum(-1) / _DEGREES)
    low, high = torch.tensor(log_posterior.bounds, dtype=torch.float64).unbind(-1)
    inside = ((proposals > low - 4.0) & (proposals < high + 4.0)).all(-1)
    log_weight = torch.full((_PROPOSALS,), -math.inf, dtype=torch.float64)
    for row in inside.nonzero().flatten().tolist():
        try:
            log_weight[row] = log_posterior(proposals[row]) - log_proposal[row]
        except (ValueError, RuntimeError):
            continue
    if not bool(torch.isfinite(log_weight).any()):
        return best.expand(count, -1)
    shares = log_weight.softmax(0).cumsum(0)
    levels = (torch.arange(count) + torch.rand(1, generator=generator)) / count
    return proposals[torch.searchsorted(shares, levels.double()).clamp_max(_PROPOSALS - 1)]


def _curvature(log_posterior: LogPosterior, best: Tensor) -> Tensor:
    """The Hessian (p, p) of minus the log density, by differences of gradients."""
    rows = []
    for step in _STEP * np.eye(len(best)):
        ahead, behind = (log_posterior.loss(best.numpy() + sign * step)[1] for sign in (1.0, -1.0))
        rows.append(torch.from_numpy((ahead - behind) / (2.0 * _STEP)))
    matrix = torch.stack(rows)
    return 0.5 * (matrix + matrix.mT)


def _full(count: int, value: float) -> Tensor:
    return torch.full((count,), value, dtype=torch.float64)
