"""The strategy "auto": blocks of near rows, a subset and the evidence of some rows, compared by held-out rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor

from ..approximation.width_warning import quiet
from ..linalg.prediction_errors import normal_log_density
from . import timing
from .ascent import Ascent, NoValueError
from .exact_stages import Blocks, Subset
from .objectives import WeightSpaceObjective
from .rollback import Values
from .session import SOME_ROWS, Stage, Training
from .starts import center_inputs, random_rows
from .strategies import Evidence, Strategy

SMALL = 2000
"""Up to so many rows it takes the evidence."""
_HELD_OUT, _CHECKED_ROWS = 1000, 20_000
_WIDE_EVALUATIONS, _WIDE_ROWS = 12, 10_000
_SHARE_OF_TIME = 0.4
_COMPARISONS = 8.0
"""As many fits to all rows must fit into a time limit where several ways are compared by held-out rows."""


class _Learned(NamedTuple):
    """Parameters, what held-out rows lose by them, how they were learned, and their values for the feature model."""

    source: str
    loss: float
    tuned: Values
    ascent: Ascent | None
    rescaled: Values


@dataclass(frozen=True, kw_only=True)
class Auto(Strategy):
    """What suits the model and the number of rows.

    The evidence for up to 2,000 rows, an ExactGP, classes, several outputs and complex values, which may learn more
    quickly by :class:`Neighbors`; a subset for few rows of one output with local blocks. Else the parameters from
    blocks, a subset, or the evidence of 10,000 rows that predict held-out rows best. A variational model learns from
    its bound. A LaplaceGP with local blocks, or more than 2,000 rows, takes a subset.

    :param initialize: whether starting values come from the data.

    >>> Auto(initialize=False).initialize
    False
    """

    def stages(self, training: Training) -> Iterable[Stage]:
        x, model = training.objective.x, training.model
        is_large = x.dim() == 2 and len(x) > SMALL
        is_few = is_large or model.block_size is not None
        if not (is_few and training.has_regression and training.regression.is_plain):
            return Evidence().stages(training)
        if not is_large:
            return Subset().stages(training)
        if not training.deadline.allows(_COMPARISONS * training.fit_seconds):
            return Blocks().stages(training)
        return _best_of_all(training)


def _best_of_all(training: Training) -> Iterator[Stage]:
    """Those of blocks, a subset and all features, and the parameters with which held-out rows are predicted best."""
    model, x, last = training.model, training.regression.x, training.fit_seconds
    held = random_rows(len(x), min(_HELD_OUT, len(x) // 10))
    is_held = torch.zeros(len(x), dtype=torch.bool)
    is_held[held] = True
    rows = torch.nonzero(~is_held).squeeze(-1)
    is_initialized, start = training.initialize, Values(model)

    def judged(source: str) -> _Learned:
        tuned, ascent = Values(model), training.ascent
        loss = _held_out_loss(training, rows, held)
        return _Learned(source, loss, tuned, ascent, Values(model))

    learned: list[_Learned] = []
    for strategy in (Blocks(), Subset()):
        if learned:
            start.restore()
        training.initialize = is_initialized
        yield from strategy.stages_on(training, rows, training.deadline.earlier(4.0 * last).share(_SHARE_OF_TIME))
        learned.append(judged(training.source))
    best = min(learned, key=lambda each: each.loss)
    has_blocks = model.block_size is not None  # whose evidence the blocks have seen
    if training.left > 0 and training.deadline.allows(3.0 * last) and not has_blocks:
        best.rescaled.restore()
        wide = WeightSpaceObjective(
            model, *cast(WeightSpaceObjective, training.objective).data(rows[random_rows(len(rows), _WIDE_ROWS)])
        )
        yield Stage(wide, evaluations=_WIDE_EVALUATIONS, trials=0, deadline=training.deadline.earlier(2.0 * last))
        center_inputs(model, x)
        best = min(best, judged(SOME_ROWS), key=lambda each: each.loss)
    training.ascent, training.source = best.ascent, best.source
    best.tuned.restore()


@torch.no_grad()
def _held_out_loss(training: Training, rows: Tensor, held: Tensor) -> float:
    """The mean negative log density of held-out targets under the feature model of other rows; a stage of its own."""
    began, some, model = timing.clock(), rows[random_rows(len(rows), _CHECKED_ROWS)], training.model
    regression = training.regression
    try:
        with quiet():
            model.condition(*cast(WeightSpaceObjective, training.objective).data(some))
            training.rescale()
            posterior = model.posterior(regression.x[held])
        variance = posterior.variance.double() + regression.noise_variances(held)
        error = regression.targets[held] - posterior.mean.double()
        score = -float(normal_log_density(error, variance).mean())
    except (ValueError, NoValueError):
        score = math.inf
    training.add_stage("feature model", f"{len(held)} held-out rows", began, score, unit="nats lost per row")
    return score if math.isfinite(score) else math.inf
