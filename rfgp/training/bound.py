"""The evidence lower bound of a variational model and all its rows, at the best distribution of the weights."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from gpytorch.likelihoods import GaussianLikelihood, LaplaceLikelihood, StudentTLikelihood
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from ..inference.latent.variational import (
    GaussianWeights,
    expected_log_likelihood,
    is_deterministic,
)
from ..models import WeightSpaceVariationalGP
from ..models.variational.model import RowSites
from ..models.variational.strategy import FunctionParts
from .objectives import Objective
from .parts import constrained_values, parts_of
from .session import Stage, Training
from .strategies import Strategy, Task
from .summary import FitStage, FitSummary
from .timing import clock


class BoundObjective(Objective):
    r"""The bound at the distribution of the weights that maximizes it, by natural-gradient steps.

    .. math:: L(\theta) = \max_q \sum_i E_q \log p(y_i | f(x_i)) - KL(q \| N(0, I))
    """

    def __init__(self, model: WeightSpaceVariationalGP, x: Tensor, y: Tensor) -> None:
        self.model, self.x, self.y = model, x, model.checked_targets(x, y)
        self._moments: tuple[Tensor, Tensor] | None = None

    @property
    def outputs(self) -> Tensor:
        return function_values(self.model, self.y)

    def evidence(self, rows: Tensor | None = None) -> Tensor:
        x, y = (self.x, self.y) if rows is None else (self.x[rows], self.y[rows])
        at = self.model.variational_strategy.at(x)
        best = self._best(at, y, rows)
        bound = best.expected - best.weights.kl_divergence.sum()
        return bound + at.first_order(best.weights, best.d_mean, best.d_variance)

    def finish(self) -> Tensor:
        best = self._best(self.model.variational_strategy.at(self.x), self.y, None)
        self.model.set_weights(best.weights)
        self.model.eval()
        return best.expected - best.weights.kl_divergence.sum()

    def _best(self, at: FunctionParts, y: Tensor, rows: Tensor | None) -> RowSites:
        """The best distribution of the weights, and what rows say under it."""
        best = self.model.best(at, y, self._start(at, y, rows))
        if rows is None:
            mean, variance = at.moments(best.weights)
            self._moments = mean - at.offset.detach(), variance
        return best

    def _start(self, at: FunctionParts, y: Tensor, rows: Tensor | None) -> GaussianWeights:
        """What follows from the moments of the functions at the last parameters, or from the prior."""
        zeros = at.features.new_zeros(at.features.shape[-1])
        prior = GaussianWeights(zeros, torch.diag_embed(zeros + 1.0))
        if self._moments is None:
            return prior
        mean, variance = self._moments if rows is None else (part[..., rows] for part in self._moments)
        expected = expected_log_likelihood(self.model.likelihood, y, mean + at.offset.detach(), variance)
        return prior.stepped(prior.target(at.features, expected.d_mean, expected.d_variance, mean), 1.0)


class WeightsAlone(Strategy):
    """The best distribution of the weights of a model without other parameters to learn."""

    def stages(self, training: Training) -> Iterable[Stage]:
        """None: it follows from the rows."""
        return ()

    def fit(self, task: Task) -> FitSummary:
        model, x, y, began = task.model, task.x, task.y, clock()
        with torch.no_grad():
            initial = float(model.elbo(x, y))
            value = float(BoundObjective(model, x, y).finish())
        took, values = clock() - began, constrained_values(parts_of(model))
        stage = FitStage("weights", "all rows", 1, took, value / len(x))
        return FitSummary(value, initial, 1, True, "converged: weights alone", took, values, (stage,))


def has_parameters(model: WeightSpaceVariationalGP) -> bool:
    """Whether there is more to learn than the weights."""
    return any(p.requires_grad for part in parts_of(model).values() for p in part.parameters())


def function_values(model: WeightSpaceVariationalGP, y: Tensor) -> Tensor:
    """Columns with the mean and the variance that functions start from: those of y (N,), or 0 and 1."""
    if isinstance(model.likelihood, GaussianLikelihood | LaplaceLikelihood | StudentTLikelihood):
        return y.unsqueeze(-1)
    return torch.tensor([[-1.0], [1.0]], dtype=torch.float64, device=y.device)


def is_exact(model: WeightSpaceVariationalGP) -> bool:
    """Whether the bound has no random draws, and the covariance of the weights is full."""
    covariance = model.variational_strategy.variational_distribution.lazy_covariance_matrix
    return is_deterministic(model.likelihood) and not isinstance(covariance, DiagLinearOperator)
