"""The stages in which parameters are learned from few rows, and the rows that each of them takes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..kernels.input_units import input_units
from . import timing
from .moments import Moments
from .narrow import ExactForm, NarrowObjective
from .near_rows import near_blocks
from .starts import sample_rows

_MEASURED_BLOCKS = 8


@dataclass(frozen=True)
class Stage:
    """Blocks of rows, and how many evaluations they take."""

    count: int
    size: int
    evaluations: int


STAGES = {
    "blocks": (Stage(256, 48, 25), Stage(256, 96, 15), Stage(80, 192, 10)),
    "subset": (Stage(1, 500, 60), Stage(1, 1500, 15)),
}


class StageRows:
    """The rows that the stages of a strategy take.

    :param form: the exact model and its rows.
    :param rows: the numbers of those rows that may be taken.
    :param moments: those of the targets, as for :class:`NarrowObjective`.
    """

    def __init__(self, form: ExactForm, rows: Tensor, moments: Moments) -> None:
        self.form, self.rows, self.moments = form, rows, moments

    def positions(self, strategy: str, stage: Stage, seconds: float, num_stages: int) -> Tensor:
        """Positions in ``rows`` of the rows of a stage, (B, n), as many as its share of the seconds allows.

        Few blocks learn a noise of zero: where the share allows too few, the stage takes all the time that is left, and
        where that does not do either there are none, but for the first stage.

        :param strategy: "blocks" or "subset".
        :param stage: one of its stages.
        :param seconds: what is left for this stage and those after it.
        :param num_stages: their number.
        """
        form, rows = self.form, self.rows
        size = min(stage.size, len(rows))
        if strategy == "subset":
            return sample_rows(len(rows), self._affordable_size(stage, seconds / num_stages)).unsqueeze(0)
        points = form.x[rows].double() / input_units(form.kernel, form.x)
        count = stage.count
        if math.isfinite(seconds):
            some = near_blocks(points, size, _MEASURED_BLOCKS)
            cost = stage.evaluations * self._cost(rows[some]) / len(some)
            fewest = stage.count // 2
            count = int(seconds / num_stages / cost)
            if count < fewest:
                is_enough = seconds >= fewest * cost or stage is STAGES[strategy][0]
                count = fewest if is_enough else 0
        return near_blocks(points, size, count, seed=size) if count else rows.new_empty(0, size)

    def _affordable_size(self, stage: Stage, seconds: float) -> int:
        if not math.isfinite(seconds):
            return stage.size
        size, count = min(stage.size, len(self.rows), 256), len(self.rows)
        cost = self._cost(self.rows[sample_rows(count, size)].unsqueeze(0))
        return max(size, min(2 * stage.size, int(size * (seconds / (stage.evaluations * cost)) ** (1.0 / 3.0))))

    def _cost(self, blocks: Tensor) -> float:
        """The seconds of an evaluation of value and gradient, after a first one."""
        seconds = math.inf
        for _ in range(2):
            began = timing.clock()
            with torch.enable_grad():
                NarrowObjective(self.form, blocks, self.moments).evidence()
            seconds = min(seconds, timing.clock() - began)
        return max(seconds, 1e-9)
