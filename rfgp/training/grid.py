"""Training on a grid of frequencies: rows are read once, and the evidence of all of them follows from their sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch

from ..models.weight_space.row_summation import checked_rows
from .composite_likelihood import CompositeLikelihood
from .objectives import WeightSpaceObjective
from .rollback import Values
from .session import Stage, Training
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

    def stages(self, training: Training) -> Iterator[Stage]:
        objective, model = cast(WeightSpaceObjective, training.objective), training.model
        knows_kernel = model.covar_module.frequency_grid is not None and training.initialize and training.has_regression
        if knows_kernel:
            yield from few_rows(training, *FEW)
        before = Values(model)
        sees_cut_off = knows_kernel and _sees_cut_off(training)
        for _ in range(0 if sees_cut_off else _ROUNDS):
            yield Stage(objective)
            training.refit()  # what has been read is let go for a much better grid alone
            is_other = objective.regrid()
            sees_cut_off = knows_kernel and _sees_cut_off(training)
            if sees_cut_off or not is_other:
                break
        if not sees_cut_off:
            return
        before.restore()
        yield from few_rows(training, *_MORE)
        objective.read_again()
        learned = [parameter for parameter in model.covar_module.parameters() if parameter.requires_grad]
        for parameter in learned:
            parameter.requires_grad_(False)
        try:
            if any(parameter.requires_grad for parameter in model.parameters()):
                yield Stage(objective)
        finally:
            for parameter in learned:
                parameter.requires_grad_(True)


def few_rows(training: Training, num_rows: int, evaluations: int) -> Iterator[Stage]:
    """The stage in which the exact kernel learns from few rows, after which the grid is the one for its parameters."""
    groups = random_rows(len(training.regression.x), num_rows).unsqueeze(0)
    likelihood = CompositeLikelihood(training.regression, groups)
    if training.left > 0:
        yield Stage(likelihood, "subset", evaluations, deadline=training.deadline)
    cast(WeightSpaceObjective, training.objective).regrid()


@torch.no_grad()
def _sees_cut_off(training: Training) -> bool:
    """Whether all rows can tell what the grid cuts off from noise."""
    model, objective = training.model, cast(WeightSpaceObjective, training.objective)
    data: Any = objective.data(random_rows(len(objective.x), FEW[0]))
    cut_off = float(model.covar_module.residual_variance(data[0][:1]).max())
    noise = model.noise.smallest(checked_rows(model, *data))
    return _ROWS_PER_FEATURE * model.covar_module.num_scalar_features * noise < objective.num_rows * cut_off
