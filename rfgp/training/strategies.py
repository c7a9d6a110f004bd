"""From what parameters are learned: the evidence of all rows, an exact subset, blocks of near rows, or the best."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from ..kernels.width_warning import quiet
from ..models import WeightSpaceGP
from . import timing
from .ascent import Ascent, NoValueError
from .costs import fit_seconds, spectrum_seconds
from .narrow import ExactForm, NarrowObjective, exact_form
from .noise_check import NUM_NEIGHBORS, has_one_noise, noise_factor
from .objectives import Objective, WeightSpaceObjective
from .rescale import only_free, spectral_objective
from .run import Run, constrained_values
from .stages import STAGES, StageRows
from .starts import center_inputs, sample_rows, set_within
from .summary import FitStage, FitSummary
from .timing import Deadline

STRATEGIES = ("auto", "evidence", "subset", "blocks")
SMALL = 2000
"""Up to so many rows "auto" takes the evidence."""
_MESSAGES = {
    "blocks": "parameters from blocks of near rows",
    "subset": "parameters from a random subset",
    "evidence": "parameters from the evidence of some rows",
}
_HELD_OUT, _CHECKED_ROWS = 1000, 20_000
_WIDE_EVALUATIONS, _WIDE_ROWS = 12, 10_000
_SHARE_OF_TIME = 0.4
_RESCALINGS = 60
_GRADIENT = 3.0
"""How many times a fit an evaluation with its gradient takes."""
_COMPARISONS = 8.0
"""As many fits to all rows must fit into a time limit where "auto" compares several ways by held-out rows."""


class _Candidate(NamedTuple):
    """Parameters, what held-out rows lose by them, how they were found, and their values for the wide model."""

    name: str
    loss: float
    tuned: list[Tensor]
    ascent: Ascent | None
    rescaled: list[Tensor]


class Training:
    """What :func:`rfgp.fit` does after its arguments are checked.

    :param objective: the evidence of the model and its data.
    :param initialize: whether starting values come from the data.
    :param limit: the largest number of evaluations.
    :param deadline: when all is to have ended, the fit at the end included.
    :param report: is told the log likelihood of every evaluation.
    """

    def __init__(
        self,
        objective: Objective,
        initialize: bool,
        limit: int,
        deadline: Deadline,
        report: Callable[[float], None],
    ) -> None:
        self.objective, self.model, self.initialize, self.limit = objective, objective.model, initialize, limit
        self.report, self.deadline = report, deadline
        self.stages: list[FitStage] = []
        self.runs: list[Run] = []
        self.ascent: Ascent | None = None
        self.initial, self.used, self.found_by = math.nan, 0, ""
        self.seconds = 0.0

    def run(self, strategy: str) -> float:
        """Tune, leave the model fitted, and return its evidence.

        :param strategy: one of ``STRATEGIES``.
        """
        few, last = fit_seconds(self.objective, self.deadline)
        self.seconds = _GRADIENT * few
        if strategy == "evidence":
            return self._evidence(self.deadline.earlier(last))
        form = exact_form(self.objective)
        if strategy == "auto" and self.deadline.allows(_COMPARISONS * last):
            self._best(form, last)
        else:
            chosen = "blocks" if strategy == "auto" else strategy
            check_strategy(form, chosen)
            self._tune(form, chosen, torch.arange(len(form.x)), self.deadline.earlier(last))
            self.found_by = chosen
        return self._finish()

    def summary(self, value: float, seconds: float) -> FitSummary:
        """What was done.

        :param value: the evidence at the end.
        :param seconds: of everything.
        """
        if self.ascent is None:
            raise ValueError("expected a training that has run, got none; call run first")
        return FitSummary(
            value,
            self.initial,
            self.used,
            self.ascent.converged,
            self._message(),
            seconds,
            constrained_values(self.model),
            tuple(self.stages),
            quantity=self.objective.quantity,
        )

    def _message(self) -> str:
        """What ended the training: the limit of a stage is no limit of all."""
        ended = "" if self.ascent is None else self.ascent.message
        if not self.found_by:
            return ended
        return f"{_MESSAGES[self.found_by]}; {ended}" if "time limit" in ended else _MESSAGES[self.found_by]

    def keep_best(self) -> bool:
        """Leave the model fitted with the best parameters of the last run that has any; whether there are any."""
        try:
            return any(run.keep_best() for run in self.runs[::-1]) and math.isfinite(self._refit())
        except (ValueError, NoValueError, NanError, NotPSDError):
            return False

    @torch.no_grad()
    def _refit(self) -> float:
        return float(self.objective.finish())

    def _evidence(self, deadline: Deadline) -> float:
        self._ascend("evidence", "all rows", self.objective, self.limit, deadline)
        value, run = self._refit(), self.runs[-1]
        if run.rows is not None:
            self.found_by = "evidence"
        elif run.initial is None:
            self.initial = value
        else:
            self.initial = run.initial
        return value

    def _ascend(
        self, name: str, rows: str, objective: Objective, limit: int, deadline: Deadline, trial_limit: int | None = None
    ) -> Ascent:
        began = timing.clock()
        seconds = 0.0 if isinstance(objective, NarrowObjective) else self.seconds
        run = Run(objective, self.initialize, limit, self.report, deadline, trial_limit, seconds)
        self.runs.append(run)
        self.ascent = ascent = run.ascend()
        self.used += ascent.evaluations
        what = rows if run.rows is None else f"{len(run.rows)} rows"
        self.stages.append(FitStage(name, what, ascent.evaluations, timing.clock() - began, ascent.value))
        return ascent

    def _tune(self, form: ExactForm, strategy: str, rows: Tensor, deadline: Deadline) -> None:
        """Learn parameters by the stages of a strategy."""
        stages, taken = STAGES[strategy], StageRows(form, rows, self.objective.moments)
        blocks = rows[:0]
        for index, stage in enumerate(stages):
            left = min(stage.evaluations, self.limit - self.used)
            has_seen_all = index > 0 and stages[index - 1].size >= len(rows)
            if left < 1 or has_seen_all or (index > 0 and not deadline.allows()):
                break
            positions = taken.positions(strategy, stage, deadline.left, len(stages) - index)
            if index > 0 and not len(positions):
                break
            blocks = rows[positions]
            objective = NarrowObjective(form, blocks, self.objective.moments)
            what = f"{blocks.shape[0]} x {blocks.shape[1]} rows" if strategy == "blocks" else f"{blocks.shape[1]} rows"
            self._ascend(strategy, what, objective, left, deadline, min(16, self.limit // 12))
            self.initialize = False
        if 0 < blocks.numel() < len(rows) > NUM_NEIGHBORS and has_one_noise(form) and deadline.allows():
            self._raise_noise(form, rows)

    def _raise_noise(self, form: ExactForm, rows: Tensor) -> None:
        """Raise a noise with which rows are predicted badly from those near them."""
        began = timing.clock()
        factor, density = noise_factor(form, rows)
        if factor > 1.0:
            set_within(form.model.likelihood.noise_covar, "noise", factor * form.model.likelihood.noise.double())
        name = "noise as it is" if factor == 1.0 else f"noise times {factor:g}"
        self.stages.append(FitStage(name, "rows given those near them", 0, timing.clock() - began, density))

    def _best(self, form: ExactForm, last: float) -> None:
        """Take the parameters with which the wide model predicts held-out rows best."""
        held = sample_rows(len(form.x), min(_HELD_OUT, len(form.x) // 10))
        is_held = torch.zeros(len(form.x), dtype=torch.bool)
        is_held[held] = True
        rows = torch.nonzero(~is_held).squeeze(-1)
        is_initialized, start = self.initialize, _values(self.model)
        found: list[_Candidate] = []
        for strategy in ("blocks", "subset"):
            if found:
                _restore(self.model, start)
            self.initialize = is_initialized
            self._tune(form, strategy, rows, self.deadline.earlier(4.0 * last).share(_SHARE_OF_TIME))
            tuned, ascent = _values(self.model), self.ascent
            found.append(_Candidate(strategy, self._held_out(form, rows, held), tuned, ascent, _values(self.model)))
        best = min(found, key=lambda candidate: candidate.loss)
        left = min(_WIDE_EVALUATIONS, self.limit - self.used)
        has_blocks = getattr(self.model, "block_size", None) is not None  # whose evidence the blocks have seen
        if left > 0 and self.deadline.allows(3.0 * last) and not has_blocks:
            _restore(self.model, best.rescaled)
            some = rows[sample_rows(len(rows), _WIDE_ROWS)]
            objective = WeightSpaceObjective(self.model, *self._data(form, some), is_lazy=True)
            ascent = self._ascend(
                "evidence", f"{len(some)} rows", objective, left, self.deadline.earlier(2.0 * last), 0
            )
            center_inputs(self.model, form.x)
            tuned = _values(self.model)
            wide = _Candidate("evidence", self._held_out(form, rows, held), tuned, ascent, _values(self.model))
            best = min(best, wide, key=lambda candidate: candidate.loss)
        self.ascent, self.found_by = best.ascent, best.name
        _restore(self.model, best.tuned)

    @torch.no_grad()
    def _held_out(self, form: ExactForm, rows: Tensor, held: Tensor) -> float:
        """The mean negative log density of held-out targets under the wide model of other rows; a stage of its own."""
        began, some = timing.clock(), rows[sample_rows(len(rows), _CHECKED_ROWS)]
        try:
            with quiet():
                self.model.condition(*self._data(form, some))
                self._rescale()
                posterior = self.model.posterior(form.x[held])
            variance = posterior.variance.double() + form.noise_variances(held)
            error = form.targets[held] - posterior.mean.double()
            density = 0.5 * ((2.0 * math.pi * variance).log() + error.square() / variance)
            score = float(density.mean())
        except (ValueError, NoValueError):
            score = math.inf
        what = f"{len(held)} held-out rows"
        self.stages.append(FitStage("wide model", what, 0, timing.clock() - began, score, "nats lost per row"))
        return score if math.isfinite(score) else math.inf

    def _data(self, form: ExactForm, rows: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        noise = None if form.noise is None else form.noise[rows].to(form.x)
        y: Any = getattr(self.objective, "y", None)
        return form.x[rows], y[rows], noise

    def _rescale(self) -> Ascent | None:
        """Learn noise, output scale and mean again from the statistics, where these do not contain them."""
        if not isinstance(self.model, WeightSpaceGP):
            return None
        if self.deadline.is_set and not self.deadline.allows(
            spectrum_seconds(self.model.covar_module.num_scalar_features)
        ):
            return None
        objective = spectral_objective(self.model, self.objective.x, self.objective.moments)
        if objective is None:
            return None
        with only_free(self.model):
            return Run(objective, False, _RESCALINGS).ascend()

    def _finish(self) -> float:
        began = timing.clock()
        value = self._refit()
        count = self.objective.num_rows
        self.stages.append(FitStage("wide model", "all rows", 0, timing.clock() - began, value / count))
        began = timing.clock()
        try:
            ascent = self._rescale()
        except (ValueError, NoValueError):
            return value
        if ascent is None:
            return value
        with torch.no_grad():
            value = float(self.model.log_marginal_likelihood())
        self.stages.append(
            FitStage("noise, scale and mean", "all rows", ascent.evaluations, timing.clock() - began, value / count)
        )
        return value


def check_strategy(form: ExactForm, strategy: str) -> None:
    """Raise a ValueError where a model cannot be tuned in this way."""
    if strategy == "blocks" and not form.is_plain:
        raise ValueError(
            "expected one target per row for blocks of near rows, got classes or several outputs; use "
            'strategy="subset" or "evidence"'
        )


def _values(model: torch.nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def _restore(model: torch.nn.Module, values: list[Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), values, strict=True):
            parameter.copy_(value)
