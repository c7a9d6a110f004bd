"""One training of a model: its maximizations, what has been done so far, and the fit to all rows at the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.models import ExactGP
from gpytorch.settings import min_fixed_noise
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from ..approximation.selection.lost_posterior import advice_on_loss, lost_posterior
from ..models import WeightSpaceGP
from ..models.spectral_evidence import SpectralEvidence, only_free, spectral_evidence
from . import timing
from .ascent import Ascent, NoValueError
from .coordinates import Coordinates
from .costs import fit_seconds, spectrum_seconds
from .exact_regression import exact_regression
from .moments import DataMoments
from .noise_check import advice_on_features
from .objectives import ExactObjective, Objective
from .run import Run, constrained_values, parts_of
from .starts import random_rows
from .summary import FitStage, FitSummary
from .timing import Deadline
from .tuning import Tuning

_RESCALINGS = 60
_COMPARED_ROWS, _COMPARED_VALUES, _FEWEST_COMPARED = 512, 2048, 32
"""Rows on which the features are compared with the exact kernel, with so many values in all."""
SOME_ROWS = "the evidence of some rows"
"""Where parameters come from that features have taught, as those from the evidence of all rows."""
_GAIN = 2.0
"""Nats that count as no gain over a constant: those that two parameters gain by chance, as the AIC counts them."""
_GRADIENT = 3.0
"""How many times a fit an evaluation with its gradient takes."""


class Training:
    """What a strategy works with: maximizations of objectives in turn, which are kept as stages."""

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
        self.runs: list[Run | Tuning] = []
        self.ascent: Ascent | None = None
        self.initial, self.used = math.nan, 0
        self.source = ""
        """Less than the evidence of all rows from which the parameters were learned; empty for that."""
        few, self.fit_seconds = fit_seconds(objective, deadline)
        self.evaluation_seconds = _GRADIENT * few

    def maximize(self) -> float:
        """Maximize the objective over all rows, or over as many as there is time for, and fit the model."""
        limit = max(1, self.limit - self.used)
        run = self.ascend("evidence", "all rows", self.objective, limit, self.deadline.earlier(self.fit_seconds))
        value = self.refit()
        if run.rows is not None:
            self.source = SOME_ROWS
        elif math.isnan(self.initial):
            self.initial = value if run.initial is None else run.initial
        return value

    def ascend(
        self,
        name: str,
        rows: str,
        objective: Objective,
        limit: int,
        deadline: Deadline,
        trial_limit: int | None = None,
        seconds: float | None = None,
        is_tied: bool = False,
    ) -> Run:
        """Maximize an objective as the next stage; ``rows`` says in words what it sees."""
        began = timing.clock()
        seconds = self.evaluation_seconds if seconds is None else seconds
        run = Run(objective, self.initialize, limit, self.report, deadline, trial_limit, seconds, is_tied)
        self.runs.append(run)
        self.ascent = ascent = run.ascend()
        self.used += ascent.evaluations
        what = rows if run.rows is None else f"{len(run.rows)} rows"
        self.add_stage(name, what, began, ascent.value, ascent.evaluations)
        return run

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
        """Leave the model fitted to all rows; its evidence."""
        return float(self.objective.finish())

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
            return Run(objective, False, _RESCALINGS).ascend()

    def finish(self) -> float:
        """Fit the model to all rows after it has learned from few, and rescale it; its evidence."""
        began, count = timing.clock(), self.objective.num_rows
        value = self.refit()
        self.add_stage("wide model", "all rows", began, value / count)
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
        if self.ascent is None:
            raise ValueError("expected a training that has run, got none; call run first")
        return FitSummary(
            value,
            self.initial,
            self.used,
            self.ascent.converged,
            self._message(self.ascent.message),
            seconds,
            constrained_values(self.model),
            tuple(self.stages),
            quantity=self.objective.quantity,
        )

    def _message(self, ended: str) -> str:
        """What ended the training: the limit of a stage is no limit of all."""
        if not self.source:
            return ended
        source = f"parameters from {self.source}"
        return f"{source}; {ended}" if "time limit" in ended else source

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
                variances = moments.output_variances
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
        if self.source:
            remarks += self._loss_by_features()
        if self.source in ("", SOME_ROWS):
            remarks += self._noise_of_features()
        return remarks

    def _loss_by_features(self) -> list[str]:
        """What to do about a loss by the features; not asked of many outputs, whose exact covariance is large."""
        count, x = self.objective.num_rows, self.objective.x
        num_outputs = self.model.covar_module.num_outputs_per_input(x[:1], x[:1])
        size = min(_COMPARED_ROWS, _COMPARED_VALUES // num_outputs)
        if size < _FEWEST_COMPARED:
            return []
        advice = advice_on_loss(lost_posterior(self.model, x[random_rows(count, size).to(x.device)], count))
        return [] if advice is None else [advice]

    def _noise_of_features(self) -> list[str]:
        """What to do about a noise that has some of the function, where features have taught it."""
        model = self.model
        if not isinstance(model, WeightSpaceGP) or model.block_size is not None or model.sums_hold:
            return []
        if model.covar_module.num_scalar_features >= self.objective.num_rows or not self.deadline.allows():
            return []
        try:
            advice = advice_on_features(exact_regression(self.objective))
        except (ValueError, NotPSDError):  # there is no exact regression, or no leaving out
            return []
        return [] if advice is None else [advice]


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

    def finish(self) -> Tensor:
        return self.model.log_marginal_likelihood()

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
    nats = (2.0 * math.pi * objective.moments.output_variances).log() + 1.0
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
