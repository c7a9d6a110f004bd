"""One maximization of an objective: its starts, its evaluations, and the best point on any end."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from . import timing
from .ascent import Ascent, Maximizer, NoValueError
from .coordinates import Coordinates
from .objectives import Objective
from .parts import Parts, log_prior
from .periods import resolutions, start_periods
from .starts import center_inputs, start_from_data
from .timing import NEVER, Deadline

_TRIALS = ((1.0, 1.0), (1.0, 0.01), (0.3, 1.0), (3.0, 0.1))
"""By what lengthscales and noise are multiplied for the starts that are tried."""
_TRIAL_EVALUATIONS, _SHARE = 25, 12
"""Evaluations of one trial: at most so many, and at most this fraction of all that are allowed."""
_SHARE_OF_TRIALS, _SHARE_OF_TIED = 0.4, 0.3
_FIRST_ROWS, _FEWEST_ROWS = 256, 16
_ENOUGH, _ENOUGH_OF_FEW = 20, 2
"""With a time limit evaluations take as many rows as can be evaluated so many times, and after it the fewest; they need
less time up to the first rows."""
_PRECISION = {torch.float64: 1e-12, torch.float32: 1e-7}


class Maximization:
    """One maximization, from starting values to the best point, of at least one evaluation.

    After the deadline it takes few rows, and a short time.

    ``report`` is told every log likelihood of all rows; ``trial_limit`` bounds the evaluations of one trial, and
    ``seconds`` is what an evaluation of few rows takes; ``is_tied`` says that lengthscales keep their ratios, whose few
    parameters are found more exactly.
    """

    def __init__(
        self,
        objective: Objective,
        initialize: bool,
        limit: int,
        report: Callable[[float], None] = lambda value: None,
        deadline: Deadline = NEVER,
        trial_limit: int | None = None,
        seconds: float = 0.0,
        is_tied: bool = False,
    ) -> None:
        self.objective, self.model, self.limit = objective, objective.model, limit
        self.parts = objective.parts
        self.prior = objective.prior or _registered(self.parts)
        self.report, self.deadline, self.is_tied = report, deadline, is_tied
        self.trial_limit = min(_TRIAL_EVALUATIONS, limit // _SHARE) if trial_limit is None else trial_limit
        moments = objective.moments
        lengths: set[int] = set()
        noises: set[int] = set()
        if objective.centers_inputs:
            center_inputs(self.model, objective.x)
        kernel_and_inputs = objective.kernel_and_inputs()
        ranges = {} if kernel_and_inputs is None else resolutions(*kernel_and_inputs)
        present = Coordinates(self.parts, moments, is_tied, ranges)
        self.trained = present if initialize and not present.has_defaults else None
        self.incoming = present.values()
        if initialize and kernel_and_inputs is not None:
            lengths, noises = start_from_data(self.model, *kernel_and_inputs, moments)
            objective.begin()
        self.coordinates = Coordinates(self.parts, moments, is_tied, ranges)
        self.periodic: list[np.ndarray] = []
        if initialize and kernel_and_inputs is not None and ranges:
            start = self.coordinates.values()
            if start_periods(*kernel_and_inputs, objective.outputs):
                self.periodic = [self.coordinates.values()]
            self.coordinates.assign(start)
        self.lengths, self.noises = self.coordinates.mask(lengths), self.coordinates.mask(noises)
        self.maximizers: list[Maximizer] = []
        self.initial: float | None = None
        self.rows: Tensor | None = None
        self.seconds = seconds

    def ascend(self) -> Ascent:
        """Maximize, and leave the model with the best parameters."""

        def evaluate(point: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient, evidence = self.evaluate(point, self.rows)
            if self.rows is None and self.initial is None:
                self.initial = evidence
            self.report(evidence)
            return value, gradient

        is_late = not self.deadline.allows(self.seconds)
        self.deadline = self.deadline.or_shortly(self.seconds)
        with self.objective.many_evaluations():
            if self.deadline.is_set:
                self.rows = self._affordable_rows(is_late)
            starts, used = self._starts(evaluate)
            self.maximizers.append(self._maximizer(evaluate, self.limit - used, self.deadline))
            ascent = self.maximizers[-1].run(*starts)
        self.assign(ascent.point)
        ascent.evaluations += used
        return ascent

    def keep_best(self) -> bool:
        """Leave the model with the best parameters seen so far; whether there are any."""
        bests = [maximizer.best for maximizer in self.maximizers[::-1] if maximizer.best is not None]
        if not bests:
            return False
        is_last = self.maximizers[-1].best is not None
        self.assign((bests[0] if is_last else max(bests, key=lambda ascent: ascent.value)).point)
        self.objective.write()
        return True

    def assign(self, point: np.ndarray) -> None:
        """Set the parameters, without gradients of earlier ones."""
        self.coordinates.assign(point)
        for parameter in self.coordinates.parameters:
            parameter.grad = None

    def _maximizer(self, evaluate: Any, limit: int, deadline: Deadline) -> Maximizer:
        precision = _PRECISION.get(self.objective.x.dtype, _PRECISION[torch.float32])
        bounds = self.coordinates.lower, self.coordinates.upper

        def is_late() -> bool:
            return not deadline.allows(self.seconds)

        tolerance = self.objective.tolerance * (_SHARE_OF_TIED if self.is_tied else 1.0)
        return Maximizer(evaluate, *bounds, limit, tolerance, precision, is_late)

    def evaluate(self, point: np.ndarray, rows: Tensor | None) -> tuple[float, np.ndarray, float]:
        """Log evidence plus log prior per row, its gradient, and the log evidence."""
        began, count = timing.clock(), self.objective.num_rows if rows is None else self.objective.num_targets(rows)
        self.assign(point)
        try:
            with torch.enable_grad():
                total, evidence = self._densities(rows)
            total.backward()
            numbers = np.array([float(total.detach()), float(evidence.detach()), *self.coordinates.gradient()])
            cause = None
        except (ValueError, NanError, NotPSDError) as error:
            numbers, cause = np.full(2 + len(point), np.nan), error
        self.seconds = timing.clock() - began
        value, log_likelihood, *gradient = self.objective.agreed(numbers)
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            raise NoValueError from cause
        return float(value) / count, np.array(gradient) / count, float(log_likelihood)

    @torch.no_grad()
    def log_density(self, point: np.ndarray) -> float:
        """Log evidence plus log prior, of the rows that it takes; minus infinity where there is none."""
        self.assign(point)
        try:
            return float(self._densities(self.rows)[0])
        except (ValueError, NanError, NotPSDError):
            return -math.inf

    def _densities(self, rows: Tensor | None) -> tuple[Tensor, Tensor]:
        """Log evidence plus log prior, and the log evidence."""
        evidence = self.objective.evidence(rows)
        return evidence if self.prior is None else evidence + self.objective.prior_weight * self.prior(), evidence

    def _starts(self, evaluate: Any) -> tuple[list[np.ndarray], int]:
        """Points to start from (the present one, guesses, and the user's values), and how many evaluations it took."""
        present = self.coordinates.values()
        points = (
            [present, *self.periodic] if self.trained is None else [present, *self.periodic, self._incoming_point()]
        )
        rows = self.objective.some_rows()
        if self.rows is not None and (rows is None or len(rows) >= len(self.rows)):
            rows = self.rows
        deadline, size = self.deadline.share(_SHARE_OF_TRIALS), self.trial_limit
        if rows is None:
            size = min(size, self.limit // _SHARE)
        if not size or not (self.lengths.any() or self.periodic):
            return points, 0
        moves = [np.log(length) * self.lengths + np.log(noise) * self.noises for length, noise in _TRIALS]
        tried = [present + move for move in (moves if self.lengths.any() else moves[:2])]
        tried += [point + move for point in self.periodic for move in moves[:2]]

        def evaluate_some(point: np.ndarray) -> tuple[float, np.ndarray]:
            return self.evaluate(point, rows)[:2]

        trials: list[Ascent] = []
        for start in tried:
            if not deadline.allows(self.seconds):
                break
            trial = self._maximizer(evaluate if rows is None else evaluate_some, size, deadline)
            self.maximizers.append(trial)
            try:
                trials.append(trial.run(start))
            except NoValueError:
                continue
        used = sum(trial.evaluations for trial in self.maximizers) if rows is None else 0
        return [*points, *[ascent.point for ascent in sorted(trials, key=lambda ascent: -ascent.value)[:1]]], used

    def _affordable_rows(self, is_late: bool) -> Tensor | None:
        """As many rows as can be evaluated often enough in the time that is left; None for all."""
        point, rows = self.coordinates.values(), self.objective.first_rows(_FEWEST_ROWS)
        while rows is not None:
            with contextlib.suppress(NoValueError):
                self.evaluate(point, rows)
            factor, enough = (2, _ENOUGH) if len(rows) >= _FIRST_ROWS else (4, _ENOUGH_OF_FEW)
            more = self.objective.first_rows(factor * len(rows))
            if more is not None and len(more) == len(rows):  # there are no more at hand
                more = None
            wanted = None if more is None else len(more)
            if is_late or not self.deadline.allows(enough * self.objective.scaled_seconds(self.seconds, rows, wanted)):
                return rows
            rows = more
        return None

    def _incoming_point(self) -> np.ndarray:
        """What the model came with, in the coordinates of the present start."""
        present = self.coordinates.values()
        if self.trained is None:
            return present
        self.trained.assign(self.incoming)
        point = self.coordinates.values()
        self.coordinates.assign(present)
        return point


def _registered(parts: Parts) -> Callable[[], Tensor] | None:
    """The log density of the registered priors; None where there are none."""
    has_priors = any(True for part in parts.values() for _ in part.named_priors())
    return functools.partial(log_prior, parts) if has_priors else None
