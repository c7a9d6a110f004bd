"""Training on a grid of frequencies: rows are read once, and the evidence of all of them follows from their sums."""

from __future__ import annotations

from dataclasses import dataclass

from ..approximation.grid_kernel import regrid
from .exact_regression import BlockObjective, exact_regression
from .session import Training
from .starts import random_rows
from .strategies import Evidence

_FEW, _EVALUATIONS = 500, 60
"""Rows whose exact likelihood says which grid is the first one, and its evaluations."""
_ROUNDS = 3
"""How many grids are tried, each of which reads all rows once."""


@dataclass(frozen=True, kw_only=True)
class GridEvidence(Evidence):
    """The evidence of all rows, on the grid for parameters from few rows, then on that for its own parameters."""

    def learn(self, training: Training) -> float:
        if training.initialize:
            _learn_from_few(training)
        for _ in range(_ROUNDS):
            training.objective.read_again()
            value = training.maximize()
            if training.used >= training.limit or not regrid(training.model):
                break
        return value


def _learn_from_few(training: Training) -> None:
    """Learn the parameters of the exact kernel from few rows, where it has a likelihood, and take the grid for them."""
    objective = training.objective
    try:
        regression = exact_regression(objective)
    except ValueError:
        return
    rows = random_rows(len(regression.x), _FEW).unsqueeze(0)
    limit, few = min(_EVALUATIONS, training.limit), BlockObjective(regression, rows, objective.moments)
    training.ascend("subset", f"{rows.shape[1]} rows", few, limit, training.deadline, seconds=0.0)
    training.initialize = False
    regrid(training.model)
