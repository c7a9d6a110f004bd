"""Training by the log marginal likelihood, for weight-space models and GPyTorch's ExactGP alike."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.models import ExactGP
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor
from tqdm.auto import tqdm

from .. import _checks
from ..models import WeightSpaceGP
from .ascent import Ascent, Maximizer, NoValueError
from .coordinates import Coordinates
from .objectives import ExactObjective, Objective, WeightSpaceObjective
from .rollback import Rollback
from .starts import center_inputs, sample_rows, start_from_data

_TRIALS = ((1.0, 1.0), (1.0, 0.01), (0.3, 1.0), (3.0, 0.1))
"""By what lengthscales and noise are multiplied for the starts that are tried."""
_TRIAL_EVALUATIONS, _SHARE = 25, 12
"""Evaluations of one trial: at most so many, and at most this fraction of all that are allowed."""
_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}
"""Gradients per row and e-fold of a parameter that count as zero."""
_PRECISION = {torch.float64: 1e-12, torch.float32: 1e-7}


@dataclass(frozen=True)
class FitSummary:
    """The result of :func:`fit`.

    :param log_marginal_likelihood: the value reached, summed over rows and classes, without priors, for the targets in
        their own units.
    :param initial_log_marginal_likelihood: the value at the start.
    :param evaluations: how many times evidence and gradient of all rows were evaluated, to compare starts included.
    :param converged: whether the gradient is zero to tolerance, except for parameters at a bound.
    :param message: what ended the training, in plain words.
    :param seconds: wall-clock time.
    :param parameters: the constrained values of every trained parameter by name.
    """

    log_marginal_likelihood: float
    initial_log_marginal_likelihood: float
    evaluations: int
    converged: bool
    message: str
    seconds: float
    parameters: dict[str, list[float]]

    def __str__(self) -> str:
        head = (
            f"log marginal likelihood {self.initial_log_marginal_likelihood:.6g} -> {self.log_marginal_likelihood:.6g} "
            f"after {self.evaluations} evaluations in {self.seconds:.1f} s ({self.message})"
        )
        lines = [f"  {name} = {', '.join(f'{v:.4g}' for v in values)}" for name, values in self.parameters.items()]
        return "\n".join([head, *lines])


def fit(
    model: WeightSpaceGP | ExactGP,
    x: Tensor | None = None,
    y: Tensor | None = None,
    *,
    noise: Tensor | None = None,
    max_evaluations: int = 200,
    initialize: bool = True,
    progress: bool | None = None,
) -> FitSummary:
    r"""Maximize the log marginal likelihood (plus log priors) over all parameters that require gradients, by L-BFGS.

    The model is left trained and fitted: a WeightSpaceGP holds the statistics at the optimum, an ExactGP is in
    evaluation mode. Exact models are evaluated with Cholesky factors whatever their size; use float64 for them.

    The result does not depend on the units of x and y: positive parameters are optimized by their logarithms, mean
    functions in standard deviations of the targets, and shift-invariant kernels subtract the mean of the inputs.
    Training ends where the gradient is zero, not where progress is slow. On any other end, an error or an interrupt
    included, the model keeps the best parameters that were seen; where there are none it is left as it was.

    :param model: a :class:`rfgp.models.WeightSpaceGP` or a GPyTorch ExactGP.
    :param x: training inputs (N, d); default: those of the ExactGP.
    :param y: training targets or labels (N,), or targets (N, T) of several outputs, with NaN for missing ones; default:
        those of the ExactGP.
    :param noise: noise variances of the shape of y, for a WeightSpaceGP with fixed noise.
    :param max_evaluations: a limit on evaluations of evidence and gradient of all rows. Starts are compared before, on
        1,000 rows where there are more, and not where the limit is below 12.
    :param initialize: whether to start output scale, noise and mean from the moments of the targets, and lengthscales,
        periods and offsets that have GPyTorch's default values from distances between inputs, at several scales; else
        training starts from the present values.
    :param progress: whether to show a progress bar; default: on terminals only.
    :returns: a summary that prints well.
    :raises ValueError: for bad data, or where nothing is to be trained; the model stays as it was.
    :warns UserWarning: where a parameter ends at a bound of its constraint.

    >>> import gpytorch, rfgp
    >>> x = torch.linspace(-1, 1, 50, dtype=torch.float64).unsqueeze(-1)
    >>> base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.PolynomialKernel(power=2)).double()
    >>> kernel = rfgp.approximate(base, num_features=16, input_dim=1, seed=0)
    >>> model = rfgp.models.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood().double())
    >>> summary = fit(model, x, x.squeeze(-1) ** 2 + 0.1 * torch.cos(20 * x.squeeze(-1)))
    >>> summary.log_marginal_likelihood > summary.initial_log_marginal_likelihood
    True
    """
    if not isinstance(model, WeightSpaceGP | ExactGP):
        raise ValueError(f"expected a WeightSpaceGP or a GPyTorch ExactGP, got {type(model).__name__}; pass a model")
    limit = _checks.positive_integer("max_evaluations", max_evaluations)
    _checks.flag("initialize", initialize)
    if progress is not None:
        _checks.flag("progress", progress)
    before = Rollback(model)
    run = None
    try:
        run = _Run(_objective(model, x, y, noise), initialize, limit, progress)
        return run.summary()
    except BaseException as error:
        if run is None or not run.keep_best():
            before.restore()
        if isinstance(error, NoValueError):
            raise (error.__cause__ or ValueError(_NOT_FINITE)) from None
        raise


_NOT_FINITE = (
    "expected a finite evidence at the start, got none; rescale the data, or start from other values with "
    "initialize=False"
)


def _objective(model: Any, x: Any, y: Any, noise: Any) -> Objective:
    if isinstance(model, WeightSpaceGP):
        return WeightSpaceObjective(model, x, y, noise)
    if noise is not None:
        raise ValueError(
            "expected no noise beside an ExactGP, got some; give it to the model's FixedNoiseGaussianLikelihood"
        )
    return ExactObjective(model, x, y)


class _Run:
    """One training: from starting values to the summary.

    :param objective: the evidence of the data.
    :param initialize: whether starting values come from the data.
    :param limit: the largest number of evaluations.
    :param progress: whether to show a progress bar; default: on terminals only.
    """

    def __init__(self, objective: Objective, initialize: bool, limit: int, progress: bool | None) -> None:
        self.began = time.perf_counter()
        self.objective, self.model, self.limit, self.progress = objective, objective.model, limit, progress
        moments = objective.moments
        lengths: set[int] = set()
        noises: set[int] = set()
        center_inputs(self.model, objective.x)
        present = Coordinates(_parts(self.model), moments)
        self.trained = None if present.has_defaults else present
        self.incoming = present.values()
        known = objective.kernel_and_inputs()
        if initialize and known is not None:
            lengths, noises = start_from_data(self.model, *known, moments)
        self.coordinates = Coordinates(_parts(self.model), moments)
        self.lengths, self.noises = self.coordinates.mask(lengths), self.coordinates.mask(noises)
        self.maximizers: list[Maximizer] = []
        self.initial: float | None = None

    def summary(self) -> FitSummary:
        """Train, and say what was done."""
        bar = tqdm(
            total=self.limit,
            desc="fit",
            unit="eval",
            disable=None if self.progress is None else not self.progress,
            leave=False,
        )

        def evaluate(point: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient, evidence = self._evaluate(point, None)
            self.initial = evidence if self.initial is None else self.initial
            bar.update()
            bar.set_postfix(evidence=f"{evidence:.6g}")
            return value, gradient

        with bar:
            starts, used = self._starts(evaluate)
            self.maximizers.append(self._maximizer(evaluate, self.limit - used))
            ascent = self.maximizers[-1].run(*starts)
        final = self._finish(ascent)
        self._warn_at_bounds(ascent)
        message = ascent.message.replace(f"limit of {self.limit - used} eval", f"limit of {self.limit} eval")
        return FitSummary(
            final,
            final if self.initial is None else self.initial,
            ascent.evaluations + used,
            ascent.converged,
            message,
            time.perf_counter() - self.began,
            _constrained(self.model),
        )

    def keep_best(self) -> bool:
        """Leave the model with the best parameters seen so far; whether there are any."""
        found = [maximizer.best for maximizer in self.maximizers[::-1] if maximizer.best is not None]
        if not found:
            return False
        is_last = self.maximizers[-1].best is not None
        self._finish(found[0] if is_last else max(found, key=lambda ascent: ascent.value))
        return True

    def _finish(self, ascent: Ascent) -> float:
        self.coordinates.assign(ascent.point)
        for parameter in self.coordinates.parameters:
            parameter.grad = None
        with torch.no_grad():
            return float(self.objective.finish())

    def _maximizer(self, evaluate: Any, limit: int) -> Maximizer:
        dtype = self.objective.x.dtype
        tolerance, precision = (table.get(dtype, table[torch.float32]) for table in (_TOLERANCE, _PRECISION))
        return Maximizer(evaluate, self.coordinates.lower, self.coordinates.upper, limit, tolerance, precision)

    def _evaluate(self, point: np.ndarray, rows: Tensor | None) -> tuple[float, np.ndarray, float]:
        """Log evidence plus log prior per row, its gradient, and the log evidence."""
        count = self.objective.num_rows if rows is None else len(rows)
        self.coordinates.assign(point)
        for parameter in self.coordinates.parameters:
            parameter.grad = None
        try:
            with torch.enable_grad():
                evidence = self.objective.evidence(rows)
                total = evidence + _log_prior(self.model)
            total.backward()
        except (ValueError, NanError, NotPSDError) as error:
            raise NoValueError from error
        value, gradient = float(total.detach()), self.coordinates.gradient()
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            raise NoValueError
        return value / count, gradient / count, float(evidence.detach())

    def _starts(self, evaluate: Any) -> tuple[list[np.ndarray], int]:
        """Points to start from, and how many evaluations of all rows it took to find them.

        The present point; where it is a guess the best of several after a few evaluations, on some of the rows where
        there are many; and what the model came with, where that was no default.
        """
        present = self.coordinates.values()
        points = [present] if self.trained is None else [present, self._incoming_point()]
        size = min(_TRIAL_EVALUATIONS, self.limit // _SHARE)
        if not self.lengths.any() or not size:
            return points, 0
        is_small = self.objective.num_rows <= 1000 or not self.objective.can_take_rows
        rows = None if is_small else sample_rows(self.objective.num_rows).to(self.objective.x.device)

        def evaluate_some(point: np.ndarray) -> tuple[float, np.ndarray]:
            return self._evaluate(point, rows)[:2]

        found: list[Ascent] = []
        for length, noise in _TRIALS:
            trial = self._maximizer(evaluate if rows is None else evaluate_some, size)
            self.maximizers.append(trial)
            try:
                found.append(trial.run(present + np.log(length) * self.lengths + np.log(noise) * self.noises))
            except NoValueError:
                continue
        used = sum(trial.evaluations for trial in self.maximizers) if rows is None else 0
        return [*points, *[ascent.point for ascent in sorted(found, key=lambda ascent: -ascent.value)[:1]]], used

    def _incoming_point(self) -> np.ndarray:
        """What the model came with, in the coordinates of the present start."""
        present = self.coordinates.values()
        if self.trained is None:
            return present
        self.trained.assign(self.incoming)
        point = self.coordinates.values()
        self.coordinates.assign(present)
        return point

    def _warn_at_bounds(self, ascent: Ascent) -> None:
        for member, side, bound in self.coordinates.at_bounds(ascent.point):
            name = member.name.rpartition(".")[2]
            if "second_noise" in member.name:
                continue
            remedy = f"give {name} a constraint with another bound"
            if "noise" in name:
                variances = self.objective.moments.output_variances
                known = " and ".join(f"{v:.3g}" for v in sorted({float(variances.min()), float(variances.max())}))
                spread = "a variance of" if len(variances) == 1 else "variances between"
                remedy = (
                    f"the targets have {spread} {known}: rescale them, or construct the likelihood with "
                    "noise_constraint=gpytorch.constraints.Positive()"
                )
            warnings.warn(
                f"{member.name} ends at the {side} bound {bound:.3g} of its constraint, which keeps it from a better "
                f"value; {remedy}",
                stacklevel=4,
            )
        self._warn_of_raised_noise()

    def _warn_of_raised_noise(self) -> None:
        """Say where GPyTorch has raised known noise to its smallest value, which matters in small units."""
        likelihood, variance = self.model.likelihood, float(self.objective.moments.variance)
        if not isinstance(self.model, ExactGP) or not isinstance(likelihood, FixedNoiseGaussianLikelihood):
            return
        noise = likelihood.noise_covar.noise
        smallest = gpytorch.settings.min_fixed_noise.value(noise.dtype)
        if float(noise.min()) <= smallest * (1.0 + 1e-6) and smallest > 1e-4 * variance:
            warnings.warn(
                f"known noise variances stand at {smallest:.3g}, to which GPyTorch raises smaller ones, and the "
                f"targets have a variance of {variance:.3g}; rescale the targets, or make the likelihood inside "
                "gpytorch.settings.min_fixed_noise(0.0, 0.0, 0.0)",
                stacklevel=5,
            )


def _parts(model: torch.nn.Module) -> dict[str, gpytorch.Module]:
    """The GPyTorch modules of which a model consists, by the prefix of their parameters."""
    if isinstance(model, gpytorch.Module):
        return {"": model}
    return {f"{name}.": part for name, part in model.named_children() if isinstance(part, gpytorch.Module)}


def _log_prior(model: torch.nn.Module) -> Tensor:
    """The log density of all priors; one of shared parameters counts once."""
    total = torch.zeros((), dtype=torch.float64)
    counted = set()
    for part in _parts(model).values():
        for _, module, prior, closure, _ in part.named_priors():
            key = (id(prior), *(id(parameter) for parameter in module.parameters(recurse=False)))
            if key not in counted:
                total = total + prior.log_prob(closure(module)).sum().to(total)
                counted.add(key)
    return total


def _constrained(model: torch.nn.Module) -> dict[str, list[float]]:
    values = {}
    for prefix, part in _parts(model).items():
        for name, parameter, constraint in part.named_parameters_and_constraints():
            value = parameter if constraint is None else constraint.transform(parameter)
            values[prefix + name.replace("raw_", "")] = value.detach().cpu().double().reshape(-1).tolist()
    return values
