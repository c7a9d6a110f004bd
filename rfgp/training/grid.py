"""Training on a grid of frequencies: rows are read once, and the evidence of all of them follows from their sums."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..approximation.grid_kernel import regrid
from ..models.weight_space.row_summation import checked_rows
from .exact_regression import BlockObjective, exact_regression
from .objectives import WeightSpaceObjective
from .session import Training
from .starts import random_rows
from .strategies import Evidence

_FEW, _EVALUATIONS = 500, 60
"""Rows whose exact likelihood says which grid is the first one, and its evaluations."""
_ROUNDS = 3
"""How many grids are tried, each of which reads all rows once."""
_ROWS_PER_FEATURE, _FEWEST = 0.5, 1000
"""This many rows per feature, times the noise over what the grid cuts off, see no process in what is cut off."""


@dataclass(frozen=True, kw_only=True)
class GridEvidence(Evidence):
    r"""The evidence of all rows, on the grid for parameters from few rows, then on that for its own parameters.

    What a grid cuts off is noise r for few rows. Many rows see that it is a process, and inflate the kernel to fit it:
    where there are more than :math:`D \sigma^2/(2 r)` for D features, so many random rows say what the kernel is, and
    all rows what noise and mean are.
    """

    def learn(self, training: Training) -> float:
        if training.initialize:
            _learn_from_few(training)
        objective: Any = training.objective
        rows = _rows_for_kernel(training.model, objective)
        if rows is None:
            return _maximize_on_grids(training)
        some = WeightSpaceObjective(training.model, *objective.data(rows))
        for _ in range(_ROUNDS):
            limit = training.limit - training.used
            if limit < 1:
                break
            training.ascend("evidence", f"{len(rows)} rows", some, limit, training.deadline)
            training.initialize = False
            if not regrid(training.model):
                break
            some.read_again()
        with _fixed(training.model.covar_module):
            return training.maximize()


def _maximize_on_grids(training: Training) -> float:
    """Maximize the evidence of all rows, again where the parameters have another grid."""
    for _ in range(_ROUNDS):
        training.objective.read_again()
        value = training.maximize()
        training.initialize = False
        if training.used >= training.limit or not regrid(training.model):
            return value
    training.objective.read_again()
    return training.refit()


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


@torch.no_grad()
def _rows_for_kernel(model: Any, objective: Any) -> Tensor | None:
    """The rows that say what the kernel is; None for all."""
    kernel, data = model.covar_module, objective.data(random_rows(len(objective.x), _FEW))
    noise = model.noise.smallest(checked_rows(model, *data))
    cut_off = float(kernel.residual_variance(data[0][:1]).max())
    count = _ROWS_PER_FEATURE * kernel.num_scalar_features * noise / cut_off
    if max(count, _FEWEST) >= objective.num_rows:
        return None
    return random_rows(len(objective.x), max(int(count), _FEWEST)).to(objective.x.device)


@contextmanager
def _fixed(kernel: torch.nn.Module) -> Iterator[None]:
    """Let the parameters of a kernel be, and others learn."""
    learned = [p for p in kernel.parameters() if p.requires_grad]
    for parameter in learned:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learned:
            parameter.requires_grad_(True)
