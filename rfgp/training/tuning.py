"""Stages of maximizations of the log densities of rows given those near them, judged by held-out rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from . import timing
from .ascent import Ascent, NoValueError
from .climb import Climb, mean_log_density
from .conditionals import Conditional
from .coordinates import Coordinates
from .moments import DataMoments
from .near_groups import NearRows
from .starts import random_rows
from .summary import FitStage
from .timing import NEVER, Deadline

_HELD_OUT, _SHARE_OF_HELD_OUT, _FEWEST = 1000, 5, 256
_NEIGHBORS, _NEIGHBORS_OF_FEW, _FEW = 16, 32, 2000
"""How many neighbors predict a row of many, and of few."""
_MEASURED, _GRADIENT = 128, 3.0
"""Rows from which costs are measured, and how many times a value an evaluation with its gradient takes."""
_SHARE_OF_JUDGMENT, _MOST_FACTORS = 0.1, 3
_MORE_OF_TRANSFORMS = 3
"""How many times the evaluations of lengthscales a transform of the inputs takes."""


@dataclass(frozen=True)
class Stage:
    """A maximization.

    :param rows: how many rows are predicted; fewer where a row needs several factors.
    :param is_tied: whether all lengthscales are multiplied by one number, and transforms stay.
    """

    rows: int
    evaluations: int
    is_tied: bool


class Tuning:
    """The parameters with which held-out rows have been predicted best so far: the model has them between stages.

    ``value`` is the mean log density of the rows ``held`` out, and ``ascent`` the maximization that has led there.
    """

    def __init__(
        self,
        conditional: Conditional,
        moments: DataMoments,
        limit: int,
        deadline: Deadline = NEVER,
        report: Callable[[float], None] = lambda value: None,
    ) -> None:
        self.conditional, self.moments, self.deadline, self.report = conditional, moments, deadline, report
        self.coordinates = Coordinates(conditional.parts, moments)
        self.limit, self.used = limit, 0
        self._near = NearRows(conditional.x)
        self.value = -math.inf
        self.ascent: Ascent | None = None
        self.stages: list[FitStage] = []
        order = random_rows(len(conditional.x), len(conditional.x)).to(conditional.x.device)
        count = max(1, min(_HELD_OUT, len(order) // _SHARE_OF_HELD_OUT))
        self._searching, self._predicting = self._costs(order[:_MEASURED]) if deadline.is_set else (0.0, 0.0)
        if deadline.is_set:
            affordable = int(_SHARE_OF_JUDGMENT * deadline.left / (self._searching + self._predicting))
            count = min(count, max(_FEWEST, affordable))
        self.held, self._others = order[:count], order[count:]
        self._best = self.coordinates.values()
        self._seen = 0

    def advance(self, stages: tuple[Stage, ...]) -> None:
        """Make stages as long as there is time."""
        for index, stage in enumerate(stages):
            more = _MORE_OF_TRANSFORMS if self.coordinates.transforms.any() and not stage.is_tied else 1
            limit = min(more * stage.evaluations, self.limit - self.used)
            is_needless = self.stages and not stage.is_tied and self._num_shapes < 2
            if limit < 1 or is_needless or (self.stages and not self.deadline.allows()):
                return
            deadline = self.deadline.share(1.0 / (len(stages) - index))
            count = self._affordable(stage, deadline)
            if count < _FEWEST:
                deadline = self.deadline
                count = self._affordable(stage, deadline)
            if self.stages and count < _FEWEST:
                return
            self._make(stage, max(count, _FEWEST), limit, deadline)

    @property
    def _num_shapes(self) -> int:
        """The number of lengthscales and parameters of transforms."""
        return int((self.coordinates.lengthscales | self.coordinates.transforms).sum())

    def keep_best(self) -> bool:
        """Leave the model with the best parameters; whether any have been judged."""
        self.coordinates.assign(self._best)
        self.conditional.write()
        return self.ascent is not None

    def _groups(self, rows: Tensor) -> Tensor:
        size = _NEIGHBORS if len(self.conditional.x) > _FEW else _NEIGHBORS_OF_FEW
        return self._near.groups(self.conditional.kernel, rows, size)

    def _costs(self, rows: Tensor) -> tuple[float, float]:
        """Seconds a row: of the search for those near it, and of its log density, without what comes only once."""
        mean_log_density(self.conditional, self._groups(rows[:1]))
        times = [timing.clock()]
        groups = self._groups(rows)
        times.append(timing.clock())
        mean_log_density(self.conditional, groups)
        search, predict = (after - before for before, after in itertools.pairwise([*times, timing.clock()]))
        return max(search, 1e-9) / len(rows), max(predict, 1e-9) / len(rows)

    def _affordable(self, stage: Stage, deadline: Deadline) -> int:
        rows = stage.rows // min(self.conditional.num_factors, _MOST_FACTORS)
        if not deadline.is_set:
            return rows
        seconds = self._searching + _GRADIENT * stage.evaluations * self._predicting
        return min(rows, int(deadline.left / seconds))

    def _make(self, stage: Stage, count: int, limit: int, deadline: Deadline) -> None:
        began = timing.clock()
        groups = self._groups(self._others.roll(-self._seen)[:count])
        self._seen += len(groups)
        climb = Climb(
            self.conditional, self.moments, groups, limit, stage.is_tied, lambda: not deadline.allows(), self.report
        )
        if not self.stages:
            climb.choose_start()
            self.value, self._best = self._judged(), self.coordinates.values()
        ascent = climb.ascend()
        self.used += ascent.evaluations
        value = self._judged()
        if value > self.value:
            self.value, self._best = value, self.coordinates.values()
        if value == self.value or self.ascent is None:
            self.ascent = ascent
        self.coordinates.assign(self._best)
        name = "one lengthscale" if stage.is_tied and self._num_shapes > 1 else "neighbors"
        rows = f"{len(groups)} rows given {groups.shape[-1] - 1} near ones"
        self.stages.append(FitStage(name, rows, ascent.evaluations, timing.clock() - began, value))

    def _judged(self) -> float:
        """The mean log density of held-out rows."""
        try:
            value = mean_log_density(self.conditional, self._groups(self.held))
        except (ValueError, NoValueError):
            return -math.inf
        return value if math.isfinite(value) else -math.inf
