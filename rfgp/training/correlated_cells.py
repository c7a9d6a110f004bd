"""The covariance of outputs and their noise variances, learned from rows of which some cells are missing."""

from __future__ import annotations

import contextlib

import gpytorch
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from torch import Tensor

from .._support.constrained import constrained, set_within
from ..linalg import cholesky
from ..linalg.prediction_errors import normal_log_density, prediction_errors
from .ascent import NoValueError
from .composite_likelihood import CompositeLikelihood, Observations
from .objectives import Objective
from .parts import Parts
from .rollback import Values
from .run import Maximization
from .stationary import covariance
from .timing import NEVER, Deadline

MOST_CELLS = 48
"""Cells of a row and its neighbors together: more cost seconds."""
_EVALUATIONS, _LEAST_NOISE, _MOST_NOISE = 24, 1e-7, 1e2
_FEWEST, _GRADIENT = 256, 3.0
"""Groups that teach in any time, and how many times a value an evaluation with its gradient takes."""


class CellCovariances(gpytorch.Module):
    """The covariance of outputs of unit variance, (T, T), and the variances of their noise, (T,)."""

    noise = constrained("noise")

    def __init__(self, function: Tensor, noise: Tensor) -> None:
        super().__init__()
        self.register_parameter("root", torch.nn.Parameter(cholesky(function)))
        self.register_parameter("raw_noise", torch.nn.Parameter(torch.zeros_like(noise)))
        self.register_constraint("raw_noise", Interval(_LEAST_NOISE, _MOST_NOISE))
        set_within(self, "noise", noise)

    @property
    def function(self) -> Tensor:
        """The covariance of the functions."""
        return self.root.tril() @ self.root.tril().mT


class CorrelatedCells(Observations):
    r"""Rows of several outputs, of which cells are predicted from known ones of other rows, and before in their own.

    .. math:: \mathrm{cov}(r_{it}, r_{ju}) = K_{ij} \Gamma_{tu} + \delta_{ij} \delta_{tu} \sigma_t^2

    :param residual: the cells of outputs of unit variance, NaN where they are missing, (N, T).
    """

    def __init__(self, objective: Objective, kernel: Kernel, residual: Tensor, start: CellCovariances) -> None:
        super().__init__(objective, kernel)
        self.residual, self.covariances, self.num_factors = residual, start, residual.shape[-1] ** 2

    @property
    def parts(self) -> Parts:
        return {"cells.": self.covariances}

    def log_densities(self, groups: Tensor, targets: int) -> Tensor:
        values, noise = self.residual[groups].flatten(1), self.covariances.noise
        matrix = torch.einsum("bij,tu->bitju", covariance(self.kernel, self.x[groups]), self.covariances.function)
        cells = matrix.reshape(*values.shape, -1) + torch.diag(noise.repeat(groups.shape[1]))
        is_known, size = ~values.isnan(), targets * len(noise)
        inside, identity = is_known.unsqueeze(-1) & is_known.unsqueeze(-2), torch.eye(values.shape[-1]).to(cells)
        errors = prediction_errors(torch.where(inside, cells, identity), values.nan_to_num(), size)
        return (normal_log_density(*errors) * is_known[:, -size:]).sum(-1)

    def learn(self, groups: Tensor, deadline: Deadline = NEVER) -> None:
        """Learn from one half of some groups, where it predicts the other half better; of few where time is short."""

        def score_of(count: int) -> float:
            return CompositeLikelihood(self, groups[:count], targets=1).score()

        times = 0.5 * (_GRADIENT * _EVALUATIONS + 2)
        groups = groups[: deadline.affordable(score_of, len(groups), _FEWEST, times)]
        first, second = (CompositeLikelihood(self, half, targets=1) for half in groups.chunk(2))
        before, score, start = Values(self.covariances), second.score(), self.covariances
        with torch.no_grad():  # a larger root, from which no direction is out of reach
            start.root.copy_(cholesky(start.function + start.noise.max() * torch.eye(len(start.noise)).to(start.noise)))
        with contextlib.suppress(NoValueError):
            Maximization(first, False, _EVALUATIONS, deadline=deadline).ascend()
        if not second.score_or_worst() > score:
            before.restore()
