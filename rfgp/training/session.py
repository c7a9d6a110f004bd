"""One training of a model: the stages of a strategy, what has been done so far, and the fit to all rows at the end."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.models import ExactGP
from gpytorch.settings import min_fixed_noise
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from .._support import checks
from ..approximation.selection.lost_posterior import advice_on_loss, lost_posterior
from ..linalg.cholesky_factor import NoFactorError
from ..models import ParameterAverage, WeightSpaceGP
from ..models.spectral_evidence import SpectralEvidence, only_free, spectral_evidence
from . import timing
from .ascent import Ascent, NoValueError
from .composite_likelihood import CompositeLikelihood, Observations
from .coordinates import Coordinates
from .costs import fit_seconds, spectrum_seconds
from .exact_regression import ExactRegression, exact_regression
from .laplace import LaplaceObjective
from .latent_rows import latent_rows
from .moments import DataMoments
from .noise_check import advice_on_features, multiply_noise
from .objectives import ExactObjective, Objective
from .parts import constrained_values, parts_of
from .rollback import Values
from .run import Maximization
from .starts import random_rows
from .summary import FitStage, FitSummary
from .timing import Deadline

T = TypeVar("T")
_RESCALINGS = 60
_COMPARED_ROWS, _COMPARED_VALUES, _FEWEST_COMPARED = 512, 2048, 32
"""Rows on which the features are compared with the exact kernel, with so many values in all."""
SOME_ROWS = "the evidence of some rows"
"""Where parameters come from that features have taught, as those from the evidence of all rows."""
_GAIN = 2.0
"""Nats that count as no gain over a constant: those that two parameters gain by chance, as the AIC counts them."""
_RAISE, _MOST_RAISED = 4.0, 4.0**16
"""By what a noise is multiplied, again and again, until matrices have Cholesky factors, and where that ends."""
_GRADIENT = 3.0
"""How many times a fit an evaluation with its gradient takes."""


@dataclass
class Stage:
    """A maximization of an objective, one step of a strategy.

    :param objective: what is maximized: :attr:`Training.objective`, or a :class:`CompositeLikelihood` of some rows.
    :param name: its name in the summary.
    :param evaluations: how many it takes at most; default: all that are left.
    :param is_tied: whether all lengthscales are multiplied by one number, and transforms of inputs stay.
    :param trials: how many evaluations each of the first starts gets, which are multiples of lengthscales and noise;
        default: some.
    :param deadline: when it ends; default: early enough for the fit to all rows.
    :raises ValueError: for an objective that is none, or bad numbers.

    The maximization that came of it is its ``ascent``.

    >>> from rfgp.training import Stage, Strategy
    >>> class Short(Strategy):
    ...     def stages(self, training):
    ...         yield Stage(training.objective, "lengthscales", evaluations=20, is_tied=True)
    ...         yield Stage(training.objective, "all", evaluations=3)
    >>> Short(initialize=False).initialize
    False
    """

    objective: Objective
    name: str = "evidence"
    evaluations: int | None = None
    is_tied: bool = False
    trials: int | None = None
    deadline: Deadline | None = None
    ascent: Ascent | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.objective, Objective):
            raise ValueError(
                "expected training.objective or a CompositeLikelihood for a stage, got "
                f"{type(self.objective).__name__}; pass one of these"
            )
        if self.evaluations is not None:
            checks.positive_integer("evaluations", self.evaluations)


class Training:
    """One training of a model, with which a strategy works: its objective, and the stages made so far.

    Between stages the model has the best parameters that the last one has seen. ``objective`` is the evidence of all
    rows, or what takes its place; the first stage starts from the data where it is to ``initialize``; ``limit`` is of
    the evaluations of all stages together, and ``report`` is told every value.
    """

    def __init__(
        self,
        objective: Objective,
        initialize: bool,
        limit: int,
        deadline: Deadline,
        report: Callable[[float], None] = lambda value: None,
    ) -> None:
        self.objective, self.model, self.initialize, self.limit = objective, objective.model, initialize, limit
        self.report, self.deadline = report, deadline
        self.stages: list[FitStage] = []
        self.runs: list[Maximization] = []
        self.ascent: Ascent | None = None
        self.initial, self.used = math.nan, 0
        self.source = ""
        """Less than the evidence of all rows from which the parameters were learned; empty for that."""
        self.average: ParameterAverage | None = None
        """The average over the parameters, where a strategy has one."""
        self._is_whole, self._raised = True, 1.0

    @functools.cached_property
    def observations(self) -> Observations:
        """The rows as the exact kernel sees them, for a :class:`CompositeLikelihood`.

        :raises ValueError: for a model of whose rows the exact kernel has no likelihood.
        """
        objective = self.objective
        return latent_rows(objective) if isinstance(objective, LaplaceObjective) else self.regression

    @functools.cached_property
    def regression(self) -> ExactRegression:
        """The same for a Gaussian likelihood."""
        return exact_regression(self.objective)

    @property
    def has_regression(self) -> bool:
        """Whether there is such a regression."""
        try:
            return self.regression is not None
        except ValueError:
            return False

    @functools.cached_property
    def _costs(self) -> tuple[float, float]:
        is_needed = self.deadline.is_set and self.objective.leaves_fit
        return fit_seconds(self.objective, self.deadline) if is_needed else (0.0, 0.0)

    @property
    def fit_seconds(self) -> float:
        """What the fit to all rows will take, zero without a time limit or such a fit."""
        return self._costs[1]

    @property
    def left(self) -> int:
        """The evaluations that are left."""
        return self.limit - self.used

    def follow(self, stages: Iterable[Stage]) -> None:
        """Make the stages of a strategy in turn, until no evaluations are left."""
        if not isinstance(stages, Iterable):
            raise ValueError(f"expected stages of a strategy, got {type(stages).__name__}; yield or return each Stage")
        try:
            for stage in stages:
                if not isinstance(stage, Stage):
                    raise ValueError(f"expected a Stage, got {type(stage).__name__}; call Stage(objective, ...)")
                if self.left < 1:
                    break
                self._make(stage)
        finally:
            if isinstance(stages, Generator):
                stages.close()  # so that it ends what it has begun, after an error too

    def _make(self, stage: Stage) -> None:
        began, objective = timing.clock(), stage.objective
        limit = self.left if stage.evaluations is None else min(stage.evaluations, self.left)
        deadline = self.deadline.earlier(self.fit_seconds) if stage.deadline is None else stage.deadline
        seconds = 0.0 if isinstance(objective, CompositeLikelihood) else _GRADIENT * self._costs[0]
        run = Maximization(
            objective, self.initialize, limit, self.report, deadline, stage.trials, seconds, stage.is_tied
        )
        self.runs.append(run)
        is_first = self.ascent is None
        self.ascent = stage.ascent = ascent = run.ascend() if is_first else self._with_more_noise(run.ascend)
        self.initialize = False
        self.used += ascent.evaluations
        self._is_whole = objective is self.objective
        rows = "all rows" if self._is_whole else objective.described
        if run.rows is not None:
            rows = f"{len(run.rows)} rows"
        if self._is_whole and run.rows is None and run.initial is not None and math.isnan(self.initial):
            self.initial = run.initial
        self.source = f'the stage "{stage.name}"'
        if self._is_whole:
            self.source = "" if run.rows is None else SOME_ROWS
        self.add_stage(stage.name, rows, began, ascent.value, ascent.evaluations)

    def add_stage(
        self, name: str, rows: str, began: float, value: float, evaluations: int = 0, unit: str = "nats per row"
    ) -> None:
        """Note what has been done since a time on the clock."""
        self.stages.append(FitStage(name, rows, evaluations, timing.clock() - began, value, unit))

    def keep_best(self) -> bool:
        """Leave the model fitted with the best parameters of the last run that has any; whether there are any."""
        try:
            return any(run.keep_best() for run in self.runs[::-1]) and math.isfinite(self.refit())
        except (ValueError, NoValueError, NanError, NotPSDError):
            return False

    @torch.no_grad()
    def refit(self) -> float:
        """Leave the model fitted to all rows; its evidence.

        A noise that other rows, or fewer, have taught is raised where matrices of all rows have no Cholesky factor.
        """
        is_of_others = self.ascent is not None and not self._is_whole
        return float(self._with_more_noise(self.objective.finish) if is_of_others else self.objective.finish())

    def _with_more_noise(self, compute: Callable[[], T]) -> T:
        """What is computed with the least noise, in steps of four, that has Cholesky factors."""
        before, factor = Values(self.model), 1.0
        while True:
            try:
                result = compute()
                break
            except (NoFactorError, NoValueError) as error:
                cause = error.__cause__ if isinstance(error, NoValueError) else error
                factor *= _RAISE
                before.restore()
                is_for_noise = isinstance(cause, NoFactorError) and factor <= _MOST_RAISED
                if not (is_for_noise and multiply_noise(self.model.likelihood, factor)):
                    raise
        self._raised *= factor
        return result

    def rescale(self) -> Ascent | None:
        """Learn noise, output scale and mean again from the statistics, where these do not contain them."""
        if not isinstance(self.model, WeightSpaceGP):
            return None
        width = self.model.covar_module.num_scalar_features
        seconds = spectrum_seconds(width) if self.deadline.is_set else 0.0
        if seconds > max(timing.SHORT, self.fit_seconds) and not self.deadline.allows(seconds):
            return None
        evidence = spectral_evidence(self.model)
        if evidence is None:
            return None
        objective = SpectralObjective(evidence, self.objective.x, self.objective.moments)
        with only_free(self.model):
            return Maximization(objective, False, _RESCALINGS).ascend()

    def finish(self) -> float:
        """Leave the model fitted to all rows; where it has learned from others, rescale it; its evidence."""
        if self.ascent is None:
            raise ValueError("expected a strategy of at least one stage, got none; yield a Stage from its stages")
        began, count = timing.clock(), self.objective.num_rows
        value = self.refit()
        if self._is_whole:
            self.initial = value if math.isnan(self.initial) and not self.source else self.initial
            return value
        if not self.objective.leaves_fit:
            return value
        self.add_stage("feature model", "all rows", began, value / count)
        began = timing.clock()
        try:
            ascent = self.rescale()
        except (ValueError, NoValueError):
            return value
        if ascent is None:
            return value
        with torch.no_grad():
            value = float(self.model.log_marginal_likelihood())
        self.add_stage("noise, scale and mean", "all rows", began, value / count, ascent.evaluations)
        return value

    def summary(self, value: float, seconds: float) -> FitSummary:
        """What was done, with the evidence at the end and the seconds of everything."""
        ended = "" if self.ascent is None else self.ascent.message
        source = f"parameters from {self.source}"
        message = f"{source}; {ended}" if "time limit" in ended else source  # the limit of a stage is no limit of all
        return FitSummary(
            value,
            self.initial,
            self.used,
            self.ascent is not None and self.ascent.converged,
            message if self.source else ended,
            seconds,
            constrained_values(parts_of(self.model)),
            tuple(self.stages),
            quantity=self.objective.quantity,
            average=self.average,
        )

    def remarks(self, value: float) -> list[str]:
        """What to warn of: a fit that finds nothing, parameters at a bound, noise that GPyTorch has raised, a loss.

        :param value: the evidence at the end.
        """
        moments = self.objective.moments
        coordinates = Coordinates(parts_of(self.model), moments)
        remarks = self.objective.remarks()
        for member, side, bound in coordinates.at_bounds(coordinates.values()):
            name = member.name.rpartition(".")[2]
            if "second_noise" in member.name:
                continue
            remedy = f"give {name} a constraint with another bound"
            if "noise" in name:
                variances = moments.targets.variances
                ends = " and ".join(f"{v:.3g}" for v in sorted({float(variances.min()), float(variances.max())}))
                spread = "a variance of" if len(variances) == 1 else "variances between"
                remedy = (
                    f"the targets have {spread} {ends}: rescale them, or construct the likelihood with "
                    "noise_constraint=gpytorch.constraints.Positive()"
                )
            remarks.append(
                f"{member.name} ends at the {side} bound {bound:.3g} of its constraint, which keeps it from a better "
                f"value; {remedy}"
            )
        remarks += _found_nothing(self.objective, value)
        remarks += _raised_noise(self.model, float(moments.variance))
        if self._raised > 1.0:
            remarks.append(
                f"the noise that was learned is multiplied by {self._raised:g}: with less, the covariance of rows has "
                "no Cholesky factor to working precision; the function has hardly any noise"
            )
        loss = self._loss_by_features() if self.source else None
        noise = self._noise_of_features() if self.source in ("", SOME_ROWS) else None
        return remarks + [advice for advice in (loss, noise) if advice is not None]

    def _loss_by_features(self) -> str | None:
        """What to do about a loss by the features; not asked of many outputs, whose exact covariance is large."""
        count, x = self.objective.num_rows, self.objective.x
        num_outputs = self.model.covar_module.num_outputs_per_input(x[:1], x[:1])
        size = min(_COMPARED_ROWS, _COMPARED_VALUES // num_outputs)
        if size < _FEWEST_COMPARED:
            return None
        return advice_on_loss(lost_posterior(self.model, x[random_rows(count, size).to(x.device)], count))

    def _noise_of_features(self) -> str | None:
        """What to do about a noise that has some of the function, where features have taught it."""
        model = self.model
        if not isinstance(model, WeightSpaceGP) or model.block_size is not None or model.sums_hold:
            return None
        if model.covar_module.num_scalar_features >= self.objective.num_rows or not self.deadline.allows():
            return None
        try:
            return advice_on_features(self.regression)
        except (ValueError, NotPSDError):  # there is no exact regression, or no leaving out
            return None


class SpectralObjective(Objective):
    """The evidence of a fitted model as a function of what its statistics do not contain."""

    centers_inputs: ClassVar[bool] = False
    can_take_rows = False

    def __init__(self, evidence: SpectralEvidence, x: Tensor, moments: DataMoments) -> None:
        self.model, self.x, self.moments = evidence.model, x, moments
        self.spectral_evidence = evidence

    @property
    def num_rows(self) -> int:
        return int(self.spectral_evidence.statistics.num_rows)

    def evidence(self, rows: Tensor | None = None) -> Tensor:
        return self.spectral_evidence.value()

    def kernel_and_inputs(self) -> tuple[Kernel, Tensor] | None:
        return None


def _found_nothing(objective: Objective, value: float) -> list[str]:
    """Whether the evidence is no larger than the likelihood of constants with noise."""
    is_normal = type(objective.model.likelihood) in (GaussianLikelihood, MultitaskGaussianLikelihood)
    is_plain = getattr(objective, "noise", None) is None and objective.quantity == Objective.quantity
    has_targets = hasattr(objective, "y") or isinstance(objective, ExactObjective)
    if not is_normal or not is_plain or not has_targets or objective.outputs.is_complex():
        return []
    counts = (~objective.outputs.isnan()).sum(0)
    nats = (2.0 * math.pi * objective.moments.targets.variances).log() + 1.0
    constant = -0.5 * float((counts * nats.to(counts.device)).sum())
    if value > constant + _GAIN:
        return []
    return [
        f"the fit is no better than a constant with noise: its log marginal likelihood is {value:.6g}, that of a "
        f"constant {constant:.6g}; try other starting values or another kernel, unless the inputs say nothing"
    ]


def _raised_noise(model: torch.nn.Module, variance: float) -> list[str]:
    """Whether GPyTorch has raised fixed noise to its smallest value, which matters in small units."""
    if not isinstance(model, ExactGP) or not isinstance(model.likelihood, FixedNoiseGaussianLikelihood):
        return []
    noise = model.likelihood.noise_covar.noise
    smallest = min_fixed_noise.value(noise.dtype)
    if float(noise.min()) > smallest * (1.0 + 1e-6) or smallest <= 1e-4 * variance:
        return []
    return [
        f"known noise variances stand at {smallest:.3g}, to which GPyTorch raises smaller ones, and the "
        f"targets have a variance of {variance:.3g}; rescale the targets, or make the likelihood inside "
        "gpytorch.settings.min_fixed_noise(0.0, 0.0, 0.0)"
    ]
