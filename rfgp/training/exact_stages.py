"""The strategies "subset" and "blocks": the likelihood of the exact kernel on few rows, stage by stage."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..approximation.input_scales import input_scales
from ..linalg.nearest import scaled_points
from . import timing
from .composite_likelihood import CompositeLikelihood
from .exact_regression import ExactRegression
from .near_rows import near_blocks
from .noise_check import NUM_NEIGHBORS, has_one_noise, raise_noise
from .session import Stage, Training
from .starts import random_rows
from .strategies import Strategy
from .timing import Deadline

_MEASURED_BLOCKS, _MEASURED_ROWS = 8, 256
_TRIAL_EVALUATIONS, _SHARE_OF_TRIALS = 16, 12


class Size(NamedTuple):
    """How many groups of how many rows a stage has, and how many evaluations it takes."""

    groups: int
    rows: int
    evaluations: int


class ExactStages(Strategy):
    """A strategy of stages, each with the likelihood of the exact kernel on other rows."""

    name: ClassVar[str]
    sizes: ClassVar[tuple[Size, ...]]

    @abc.abstractmethod
    def positions(self, regression: ExactRegression, rows: Tensor, size: Size, seconds: float, left: int) -> Tensor:
        """Positions in ``rows`` of the rows that a stage takes, (B, n)."""

    def stages(self, training: Training) -> Iterable[Stage]:
        rows, deadline = torch.arange(len(training.regression.x)), training.deadline.earlier(training.fit_seconds)
        return self.stages_on(training, rows, deadline)

    def stages_on(self, training: Training, rows: Tensor, deadline: Deadline) -> Iterator[Stage]:
        """Those that learn from some of the rows, with these numbers."""
        regression, groups = training.regression, rows[:0]
        for index, size in enumerate(self.sizes):
            has_seen_all = index > 0 and self.sizes[index - 1].rows >= len(rows)
            if training.left < 1 or has_seen_all or (index > 0 and not deadline.allows()):
                break
            evaluations = min(size.evaluations, training.left)
            positions = self.positions(regression, rows, size, deadline.left, len(self.sizes) - index)
            if index > 0 and not len(positions):
                break
            groups = rows[positions]
            likelihood = CompositeLikelihood(regression, groups)
            trials = min(_TRIAL_EVALUATIONS, training.limit // _SHARE_OF_TRIALS)
            yield Stage(likelihood, self.name, evaluations, trials=trials, deadline=deadline)
        if 0 < groups.numel() < len(rows) > NUM_NEIGHBORS and has_one_noise(regression) and deadline.allows():
            raise_noise(training, regression, rows)


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
    sizes = (Size(1, 500, 60), Size(1, 1500, 15))

    def positions(self, regression: ExactRegression, rows: Tensor, size: Size, seconds: float, left: int) -> Tensor:
        count = size.rows
        if math.isfinite(seconds):
            least = min(count, len(rows), _MEASURED_ROWS)
            cost = size.evaluations * _seconds(regression, rows[random_rows(len(rows), least)].unsqueeze(0))
            count = max(least, min(2 * count, int(least * (seconds / left / cost) ** (1.0 / 3.0))))
        return random_rows(len(rows), count).unsqueeze(0)


@dataclass(frozen=True, kw_only=True)
class Blocks(ExactStages):
    """The likelihood of the exact kernel on up to 256 blocks of 48 to 192 near rows, which see short range and noise.

    Noise, output scale and mean are learned again as for :class:`Subset`.

    :param initialize: whether starting values come from the data.

    >>> Blocks().name
    'blocks'
    """

    name = "blocks"
    sizes = (Size(256, 48, 25), Size(256, 96, 15), Size(80, 192, 10))

    def positions(self, regression: ExactRegression, rows: Tensor, size: Size, seconds: float, left: int) -> Tensor:
        """Few blocks learn a noise of zero: where there is no time for enough, a stage but the first takes none."""
        if not regression.is_plain:
            raise ValueError(
                "expected one target per row for blocks of near rows, got classes or several outputs; use "
                'strategy="subset" or "evidence"'
            )
        points = scaled_points(regression.x[rows], input_scales(regression.kernel, regression.x))
        num_rows, count = min(size.rows, len(rows)), size.groups
        if math.isfinite(seconds):
            some = near_blocks(points, num_rows, _MEASURED_BLOCKS)
            cost = size.evaluations * _seconds(regression, rows[some]) / len(some)
            fewest = size.groups // 2
            count = int(seconds / left / cost)
            if count < fewest:
                is_enough = seconds >= fewest * cost or size is self.sizes[0]
                count = fewest if is_enough else 0
        return near_blocks(points, num_rows, count, seed=num_rows) if count else rows.new_empty(0, num_rows)


def _seconds(regression: ExactRegression, blocks: Tensor) -> float:
    """The seconds of an evaluation of value and gradient, after a first one."""
    seconds, likelihood = math.inf, CompositeLikelihood(regression, blocks)
    for _ in range(2):
        began = timing.clock()
        with torch.enable_grad():
            likelihood.evidence()
        seconds = min(seconds, timing.clock() - began)
    return max(seconds, 1e-9)
