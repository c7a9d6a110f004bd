"""Training on a grid of frequencies: rows are read once, and the evidence of all of them follows from their sums."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch

from ..models.weight_space.row_summation import checked_rows
from .exact_regression import BlockObjective, exact_regression
from .objectives import WeightSpaceObjective
from .session import Training
from .starts import random_rows
from .strategies import Evidence

FEW, _MORE = (500, 60), (1000, 15)
"""Rows whose exact likelihood says what the kernel is, and its evaluations."""
_ROUNDS = 3
"""How many grids are tried, each of which reads all rows once."""
_ROWS_PER_FEATURE = 0.5
"""This many rows per feature, times the noise over what the grid cuts off, see no process in what is cut off."""


@dataclass(frozen=True, kw_only=True)
class GridEvidence(Evidence):
    r"""The evidence of all rows, from the parameters that the exact kernel learns from 500 rows, on the grid for them.

    What a grid cuts off is noise r for few rows. More than :math:`D \sigma^2/(2 r)` rows, for D features, see that it
    is a process, and their evidence takes it for the noise: there the exact kernel learns from 1,000 rows, and all rows
    say what noise and mean are.
    """

    def learn(self, training: Training) -> float:
        is_of_points = training.model.covar_module.frequency_grid is not None
        knows_kernel = is_of_points and training.initialize and learn_from_few(training, *FEW)
        training.initialize = training.initialize and not knows_kernel
        before = [parameter.detach().clone() for parameter in training.model.parameters()]
        value = None if knows_kernel and _sees_cut_off(training) else _maximize_on_grids(training, knows_kernel)
        if value is not None:
            return value
        with torch.no_grad():
            for parameter, old in zip(training.model.parameters(), before, strict=True):
                parameter.copy_(old)
        learn_from_few(training, *_MORE)
        training.objective.read_again()
        with _fixed(training.model.covar_module):
            is_free = any(parameter.requires_grad for parameter in training.model.parameters())
            return training.maximize() if is_free else training.refit()


def _maximize_on_grids(training: Training, knows_kernel: bool) -> float | None:
    """Maximize the evidence of all rows, again where the parameters have another grid; None where rows see too much."""
    objective = cast(WeightSpaceObjective, training.objective)
    for _ in range(_ROUNDS):
        value = training.maximize()
        training.initialize = False
        is_other = objective.regrid()
        if knows_kernel and _sees_cut_off(training):
            return None
        if not is_other:
            return value
        if training.used >= training.limit:
            break
    return training.refit()


def learn_from_few(training: Training, num_rows: int, evaluations: int) -> bool:
    """Learn the parameters of the exact kernel from few rows, and take the grid for them; whether it can be done."""
    objective, limit = cast(WeightSpaceObjective, training.objective), min(evaluations, training.limit - training.used)
    try:
        regression = exact_regression(objective)
    except ValueError:
        return False
    if limit > 0:
        rows = random_rows(len(regression.x), num_rows).unsqueeze(0)
        few = BlockObjective(regression, rows, objective.moments)
        training.ascend("subset", f"{rows.shape[1]} rows", few, limit, training.deadline, seconds=0.0)
    objective.regrid()
    return True


@torch.no_grad()
def _sees_cut_off(training: Training) -> bool:
    """Whether all rows can tell what the grid cuts off from noise."""
    model, objective = training.model, cast(WeightSpaceObjective, training.objective)
    data: Any = objective.data(random_rows(len(objective.x), FEW[0]))
    cut_off = float(model.covar_module.residual_variance(data[0][:1]).max())
    noise = model.noise.smallest(checked_rows(model, *data))
    return _ROWS_PER_FEATURE * model.covar_module.num_scalar_features * noise < objective.num_rows * cut_off


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
