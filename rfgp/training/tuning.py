"""Stages with the log densities of rows given those near them, judged by held-out rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from . import timing
from .ascent import Ascent
from .composite_likelihood import CompositeLikelihood, Observations
from .coordinates import Coordinates
from .near_rows import NearRows
from .session import Stage
from .starts import random_rows
from .timing import NEVER, Deadline

_HELD_OUT, _SHARE_OF_HELD_OUT, _FEWEST = 1000, 5, 256
_NEIGHBORS, _NEIGHBORS_OF_FEW, _FEW = 16, 32, 2000
"""How many neighbors predict a row of many, and of few."""
_MEASURED, _SHARE_OF_MEASUREMENT, _GRADIENT = (128, 1024), 0.01, 3.0
"""Rows from which costs are measured, more where the first take less than this share of the time, and how many times a
value an evaluation with its gradient takes."""
_FEW_EVALUATIONS = 8
"""Evaluations of a stage for which there is not enough time."""
_SHARE_OF_JUDGMENT, _MOST_FACTORS = 0.1, 3
_STARTS = ((1.0, 1.0), (1.0, 0.01), (0.3, 1.0), (0.3, 0.01))
"""By what lengthscales and noise are multiplied for the starts that are compared; scales are divided where no noise is
learned, as that of labels."""
_ROWS_OF_STARTS, _SHARE_OF_STARTS = 128, 0.2


def num_held_out(num_rows: int) -> int:
    """How many of so many rows are held out, the first ones of :func:`random_rows`, fewer where time is short."""
    return max(1, min(_HELD_OUT, num_rows // _SHARE_OF_HELD_OUT))


class PlannedStage(NamedTuple):
    """A stage to come, with so many rows: fewer where a row needs several factors.

    ``neighbors`` predict a row; None for as many as tell lengthscales quickly.
    """

    rows: int
    evaluations: int
    is_tied: bool
    neighbors: int | None = None


class Tuning:
    """The parameters with which held-out rows have been predicted best so far: the model has them between stages.

    ``value`` is the mean log density of the rows ``held`` out, ``ascent`` the maximization that has led there, and
    ``near`` what finds rows near others.

    :param near: finds rows near others; models of the same rows share one.
    :param has_start: whether the parameters have been learned before, so that other starts are not tried.
    """

    def __init__(
        self,
        observations: Observations,
        deadline: Deadline = NEVER,
        near: NearRows | None = None,
        has_start: bool = False,
    ) -> None:
        self.observations, self.deadline, self._has_start = observations, deadline, has_start
        self.coordinates = Coordinates(observations.parts, observations.objective.moments)
        self.near = NearRows(observations.x) if near is None else near
        self._size = _NEIGHBORS if len(observations.x) > _FEW else _NEIGHBORS_OF_FEW
        self.value = -math.inf
        self.ascent: Ascent | None = None
        order = random_rows(len(observations.x), len(observations.x)).to(observations.x.device)
        count = num_held_out(len(order))
        self._searching, self._predicting = self._costs(order) if deadline.is_set else (0.0, 0.0)
        if deadline.is_set:
            affordable = int(_SHARE_OF_JUDGMENT * deadline.left / (self._searching + self._predicting))
            count = min(count, max(_FEWEST, affordable))
        self.held, self._others = order[:count], order[count:]
        self._best = self.coordinates.values()
        self._seen = 0

    def stages(self, steps: tuple[PlannedStage, ...]) -> Iterator[Stage]:
        """Those for which there is time; after each, the model has the best parameters."""
        has_one_shape = (self.coordinates.lengthscales | self.coordinates.transforms).sum() < 2
        until = self.deadline.share(self.observations.search_share)
        for index, step in enumerate(steps):
            is_other_size = step.neighbors not in (None, self._size)
            is_needless = self._seen and not step.is_tied and has_one_shape and not is_other_size
            if is_needless or (self._seen and not until.allows()):
                return
            if not self._seen and not self._has_start:
                self._choose_start(self._likelihood(self._others[:_ROWS_OF_STARTS], is_target=True), until)
            deadline = until.share(1.0 / (len(steps) - index))
            count, evaluations = self._affordable(step, deadline)
            if count < _FEWEST:
                count, deadline = _FEWEST, until
            self._size = step.neighbors or self._size
            likelihood = self._likelihood(self._others.roll(-self._seen)[:count], is_target=True)
            if not self._seen or is_other_size:
                self.value, self._best = self._likelihood(self.held).score_or_worst(), self.coordinates.values()
            self._seen += likelihood.num_rows
            name = "one lengthscale" if step.is_tied and not has_one_shape else "neighbors"
            stage = Stage(likelihood, name, evaluations, step.is_tied, 0, deadline)
            yield stage
            value = self._likelihood(self.held).score_or_worst()
            if value > self.value:
                self.value, self.ascent, self._best = value, stage.ascent, self.coordinates.values()
            self.ascent = self.ascent or stage.ascent
            self.coordinates.assign(self._best)

    def write(self, deadline: Deadline = NEVER) -> None:
        """Leave the model with the best parameters."""
        self.coordinates.assign(self._best)
        self.observations.write(deadline)

    def _likelihood(self, rows: Tensor, is_target: bool = False) -> CompositeLikelihood:
        """Rows given those near them; as targets of which parameters are learned, without rows that have a twin."""
        groups = self.near.groups(self.observations.kernel, rows, self._size)
        return CompositeLikelihood(self.observations, self.near.without_twins(groups) if is_target else groups, 1)

    def _costs(self, order: Tensor) -> tuple[float, float]:
        """Seconds a row: of the search for those near it, and of its log density, without what comes only once."""
        self._likelihood(order[:1]).score()
        costs = math.inf, math.inf
        for count in _MEASURED:
            rows, times = order[:count], [timing.clock()]
            likelihood = self._likelihood(rows)
            times.append(timing.clock())
            likelihood.score()
            search, predict = (after - before for before, after in itertools.pairwise([*times, timing.clock()]))
            costs = max(search, 1e-9) / len(rows), max(predict, 1e-9) / len(rows)
            if search + predict > _SHARE_OF_MEASUREMENT * self.deadline.left:
                break
        return costs

    def _affordable(self, step: PlannedStage, deadline: Deadline) -> tuple[int, int]:
        """So many rows, and evaluations, as there is time for."""
        rows = step.rows // min(self.observations.num_factors, _MOST_FACTORS)
        for evaluations in (step.evaluations, min(step.evaluations, _FEW_EVALUATIONS)):
            seconds = self._searching + _GRADIENT * evaluations * self._predicting
            if rows * seconds <= deadline.left:
                return rows, evaluations
        return int(deadline.left / seconds), evaluations

    @torch.no_grad()
    def _choose_start(self, likelihood: CompositeLikelihood, deadline: Deadline) -> None:
        """Go on from the best of some multiples of the lengthscales and noises: of all for which there is time."""
        coordinates, deadline = self.coordinates, deadline.share(_SHARE_OF_STARTS)
        start, best = coordinates.values(), -math.inf
        chosen, noises = start, coordinates.noises
        of_noise = 1.0 * noises if noises.any() else -1.0 * coordinates.scales
        for length, noise in _STARTS:
            if math.isfinite(best) and not deadline.allows():
                break
            point = start + np.log(length) * coordinates.lengthscales + np.log(noise) * of_noise
            coordinates.assign(np.clip(point, coordinates.lower, coordinates.upper))
            try:
                self.observations.profile(likelihood.groups)
                value = likelihood.score()
            except ValueError:
                continue
            if value > best:
                best, chosen = value, coordinates.values()
        coordinates.assign(chosen)
