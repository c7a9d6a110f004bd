"""The strategies "subset" and "blocks": the likelihood of the exact kernel on few rows, stage by stage."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .._support.constrained import set_within
from ..approximation.input_scales import input_scales
from ..linalg.nearest import scaled_points
from . import timing
from .exact_regression import BlockObjective, ExactRegression, exact_regression
from .near_rows import near_blocks
from .noise_check import NUM_NEIGHBORS, has_one_noise, noise_factor
from .session import Training
from .starts import random_rows
from .strategies import Maximization
from .timing import Deadline

_MEASURED_BLOCKS, _MEASURED_ROWS = 8, 256
_TRIAL_EVALUATIONS, _SHARE_OF_TRIALS = 16, 12


@dataclass(frozen=True)
class Stage:
    """Blocks of rows, and how many evaluations they take."""

    count: int
    size: int
    evaluations: int


class ExactStages(Maximization):
    """A strategy of stages, each with the likelihood of the exact kernel on other rows."""

    name: ClassVar[str]
    source: ClassVar[str]
    stages: ClassVar[tuple[Stage, ...]]

    @abc.abstractmethod
    def positions(self, regression: ExactRegression, rows: Tensor, stage: Stage, seconds: float, left: int) -> Tensor:
        """Positions in ``rows`` of the rows that a stage takes, (B, n)."""

    @abc.abstractmethod
    def described(self, blocks: Tensor) -> str:
        """The rows (B, n) of a stage, in words."""

    def learn(self, training: Training) -> float:
        regression = exact_regression(training.objective)
        self.check(regression)
        every = torch.arange(len(regression.x))
        self.tune(training, regression, every, training.deadline.earlier(training.fit_seconds))
        training.source = self.source
        return training.finish()

    def check(self, regression: ExactRegression) -> None:
        """Raise a ValueError where a model cannot be trained in this way."""

    def tune(self, training: Training, regression: ExactRegression, rows: Tensor, deadline: Deadline) -> None:
        """Learn parameters from some of the rows with these numbers."""
        blocks = rows[:0]
        for index, stage in enumerate(self.stages):
            limit = min(stage.evaluations, training.limit - training.used)
            has_seen_all = index > 0 and self.stages[index - 1].size >= len(rows)
            if limit < 1 or has_seen_all or (index > 0 and not deadline.allows()):
                break
            positions = self.positions(regression, rows, stage, deadline.left, len(self.stages) - index)
            if index > 0 and not len(positions):
                break
            blocks = rows[positions]
            objective = BlockObjective(regression, blocks, training.objective.moments)
            trials = min(_TRIAL_EVALUATIONS, training.limit // _SHARE_OF_TRIALS)
            training.ascend(self.name, self.described(blocks), objective, limit, deadline, trials, seconds=0.0)
            training.initialize = False
        if 0 < blocks.numel() < len(rows) > NUM_NEIGHBORS and has_one_noise(regression) and deadline.allows():
            _raise_noise(training, regression, rows)


@dataclass(frozen=True, kw_only=True)
class Subset(ExactStages):
    """The likelihood of the exact kernel on 1,500 random rows, which sees the long range.

    Noise, output scale and mean are learned again from the statistics of all rows. A LaplaceGP has Laplace's
    evidence of up to 1,000 rows in place of the likelihood.

    :param initialize: whether starting values come from the data.

    >>> Subset().name
    'subset'
    """

    name = "subset"
    source = "a random subset"
    stages = (Stage(1, 500, 60), Stage(1, 1500, 15))

    def positions(self, regression: ExactRegression, rows: Tensor, stage: Stage, seconds: float, left: int) -> Tensor:
        size = stage.size
        if math.isfinite(seconds):
            least = min(size, len(rows), _MEASURED_ROWS)
            cost = stage.evaluations * _seconds(regression, rows[random_rows(len(rows), least)].unsqueeze(0))
            size = max(least, min(2 * size, int(least * (seconds / left / cost) ** (1.0 / 3.0))))
        return random_rows(len(rows), size).unsqueeze(0)

    def described(self, blocks: Tensor) -> str:
        return f"{blocks.shape[1]} rows"


@dataclass(frozen=True, kw_only=True)
class Blocks(ExactStages):
    """The likelihood of the exact kernel on up to 256 blocks of 48 to 192 near rows, which see short range and noise.

    Noise, output scale and mean are learned again as for :class:`Subset`.

    :param initialize: whether starting values come from the data.

    >>> Blocks().name
    'blocks'
    """

    name = "blocks"
    source = "blocks of near rows"
    stages = (Stage(256, 48, 25), Stage(256, 96, 15), Stage(80, 192, 10))

    def positions(self, regression: ExactRegression, rows: Tensor, stage: Stage, seconds: float, left: int) -> Tensor:
        """Few blocks learn a noise of zero: where there is no time for enough, a stage but the first takes none."""
        points = scaled_points(regression.x[rows], input_scales(regression.kernel, regression.x))
        size, count = min(stage.size, len(rows)), stage.count
        if math.isfinite(seconds):
            some = near_blocks(points, size, _MEASURED_BLOCKS)
            cost = stage.evaluations * _seconds(regression, rows[some]) / len(some)
            fewest = stage.count // 2
            count = int(seconds / left / cost)
            if count < fewest:
                is_enough = seconds >= fewest * cost or stage is self.stages[0]
                count = fewest if is_enough else 0
        return near_blocks(points, size, count, seed=size) if count else rows.new_empty(0, size)

    def described(self, blocks: Tensor) -> str:
        return f"{blocks.shape[0]} x {blocks.shape[1]} rows"

    def check(self, regression: ExactRegression) -> None:
        if not regression.is_plain:
            raise ValueError(
                "expected one target per row for blocks of near rows, got classes or several outputs; use "
                'strategy="subset" or "evidence"'
            )


def _seconds(regression: ExactRegression, blocks: Tensor) -> float:
    """The seconds of an evaluation of value and gradient, after a first one."""
    seconds = math.inf
    for _ in range(2):
        began = timing.clock()
        with torch.enable_grad():
            BlockObjective(regression, blocks).evidence()
        seconds = min(seconds, timing.clock() - began)
    return max(seconds, 1e-9)


def _raise_noise(training: Training, regression: ExactRegression, rows: Tensor) -> None:
    """Raise a noise with which rows are predicted badly from those near them."""
    began = timing.clock()
    factor, density = noise_factor(regression, rows)
    likelihood = regression.model.likelihood
    if factor > 1.0:
        set_within(likelihood.noise_covar, "noise", factor * likelihood.noise.double())
    name = "noise as it is" if factor == 1.0 else f"noise times {factor:g}"
    training.add_stage(name, "rows given those near them", began, density)
