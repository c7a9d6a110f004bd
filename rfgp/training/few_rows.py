"""The strategy of a model by Laplace's approximation of many rows: its evidence of few."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch

from . import timing
from .composite_likelihood import CompositeLikelihood
from .laplace import LaplaceObjective
from .latent_rows import ClassRows, LatentRows
from .rollback import Values
from .session import Stage, Training
from .starts import random_rows
from .strategies import Strategy

_FEW, _MORE, _HELD_OUT = 500, 1000, 1000
_EVALUATIONS = 20, 12
_TRIAL_EVALUATIONS = 6


@dataclass(frozen=True, kw_only=True)
class FromFewRows(Strategy):
    """Laplace's evidence of the exact kernel on 500 random rows with lengthscales of known ratios, then 1,000 with all.

    For T tasks so many cells, whether observed or not; for classes the kernel is that of 96 landmarks.
    The parameters with which these rows predict others best are kept, and the model is fitted to all rows.

    :param initialize: whether starting values come from the data.
    """

    def stages(self, training: Training) -> Iterator[Stage]:
        objective, model = cast(LaplaceObjective, training.objective), training.model
        observations = cast(LatentRows, training.observations)
        cells = 1 if isinstance(observations, ClassRows) else model.latent.num_functions
        few, more, held_out = (size // cells for size in (_FEW, _MORE, _HELD_OUT))
        every = random_rows(objective.num_rows, more + held_out).to(objective.x.device)
        held, deadline = every[more:], training.deadline.earlier(training.fit_seconds)
        lowest, chosen = math.inf, None
        for size, evaluations, is_tied in zip((few, more), _EVALUATIONS, (True, False), strict=True):
            limit = min(evaluations, training.left)
            if limit < 1 or (chosen is not None and not deadline.allows()):
                break
            rows = every[:size]
            trials = min(_TRIAL_EVALUATIONS, limit // 4) if is_tied else 0
            subset = CompositeLikelihood(observations, rows.unsqueeze(0))
            yield Stage(subset, "subset", limit, is_tied, trials, deadline)
            loss = 0.0
            if len(held):  # without such rows every subset is as good as the last
                began = timing.clock()
                others = CompositeLikelihood(observations, torch.cat([rows, held]).unsqueeze(0), len(held))
                loss = -others.score_or_worst() / len(held)
                training.add_stage("subset", f"{len(held)} held-out rows", began, loss, unit="nats lost per row")
            if chosen is None or loss <= lowest:
                lowest, chosen, mode = loss, rows, observations.mode
                best = Values(model)
        if chosen is not None:
            best.restore()
            objective.begin_at(chosen, mode)
