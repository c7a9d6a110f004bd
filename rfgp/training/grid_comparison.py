"""Models on Fourier grids, compared by the evidence of all rows, whose sums on one grid are read once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..approximation.families.grid import grids_in, share_grid
from ..models import WeightSpaceGP
from ..models.weight_space.row_summation import checked_rows
from .grid import FEW, few_rows
from .objectives import WeightSpaceObjective
from .session import Stage, Training
from .starts import random_rows
from .timing import NEVER, Deadline

_EVALUATIONS, _SAMPLE = 25, 100


def compare_on_grid(
    models: Mapping[str, WeightSpaceGP], x: Tensor, y: Tensor, noise: Tensor | None, deadline: Deadline
) -> dict[str, float]:
    """The log evidence per row of every model with its best parameters, the best one first.

    Few rows teach each kernel which frequencies it needs, and the grid has those of all.
    """
    objectives = {name: WeightSpaceObjective(model, x, y, noise) for name, model in models.items()}
    _check_alike(objectives)
    trainings = {name: Training(each, True, FEW[1], NEVER) for name, each in objectives.items()}
    for name, training in trainings.items():
        if not training.has_regression:
            raise ValueError(
                "expected real targets without NaN and a Gaussian, fixed-noise or Dirichlet likelihood for a "
                f"comparison on a Fourier grid, got others for {name!r}; fit the models one by one"
            )
        training.follow(few_rows(training, *FEW))
    grids = [grid for model in models.values() for grid in grids_in(model)]
    share_grid(grids, [objective.precision() for objective in objectives.values()])
    read: WeightSpaceGP | None = None
    scores = {}
    for left, (name, training) in zip(range(len(models), 0, -1), trainings.items(), strict=True):
        if read is not None:
            models[name].take(read.sums, read.training_data)
            objectives[name].is_read = True
        training.deadline, training.limit = deadline.share(1.0 / left), training.used + _EVALUATIONS
        training.follow([Stage(training.objective)])
        scores[name] = training.refit() / len(x)
        read = models[name]
    return dict(sorted(scores.items(), key=lambda item: -item[1]))


def _check_alike(objectives: Mapping[str, WeightSpaceObjective]) -> None:
    """Raise a ValueError where models see rows in other ways, so that they have no sums in common."""
    seen = {name: _rows(objective) for name, objective in objectives.items()}
    first, *others = seen
    for name in others:
        if len(seen[name]) != len(seen[first]) or not all(map(_is_same, seen[name], seen[first])):
            raise ValueError(
                "expected models that see the same columns of inputs, with likelihoods and means of one form, for a "
                f"comparison on a Fourier grid, got others in {first!r} and {name!r}; fit the models one by one"
            )


def _rows(objective: WeightSpaceObjective) -> list[Any]:
    """Some rows and their inputs as the sums of a model contain them."""
    batch: Any = objective.data(random_rows(len(objective.x), _SAMPLE))
    return [*(grid.active_dims for grid in grids_in(objective.model)), *checked_rows(objective.model, *batch)]


def _is_same(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return torch.equal(first, second)
    return first is second or (not isinstance(first, Tensor) and first == second)
