"""A model of counts: its kernel, likelihood and parameters by the evidence of some rows, then fitted to all."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.means import ConstantMean
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from ..approximation.entry import approximate
from ..averaging.member import Moments
from ..likelihoods import NegativeBinomialLikelihood, PoissonLikelihood
from ..likelihoods.count_predictive import CountPredictive
from ..models import LaplaceGP
from ..training import Evidence, FitSummary, fit, timing
from ..training.starts import random_rows
from ..training.timing import Deadline
from .choice import Parts
from .frames.donors import Imputations
from .kernels import kernel_of_levels

LIKELIHOODS = ("auto", "negative_binomial", "poisson")
_CHOICE_ROWS, _TAUGHT_EVENTS, _MOST_TAUGHT = 500, 1000, 4000
"""Rows that choose a kernel, and rows with events among those that teach its parameters, which are at most so many."""
_CHOICE_WIDTH, _TAUGHT_WIDTH = 64, 128
_CHOICE_EVALUATIONS, _CHOICE_SHARE, _TAUGHT_SHARE = 15, 0.4, 0.5
_FEWEST_EVALUATIONS, _ENOUGH_EVALUATIONS, _TIMES = 10, 30, 1.5
"""In a time limit parameters are learned by so many evaluations, where the choice of rows allows, or the fewest; each
takes that many times what a fit from zero takes."""
_FEW, _PARTS = 4, 16
"""The part of the rows that teach which chooses a kernel: rare events need more; and that of all rows which tells how
long their fit will take."""
_NO_FUNCTION = 1e-6
"""The output scale of a function that is zero."""
_CHUNK = 4096
_DISPERSION = 0.1
"""Where that of negative binomial counts starts."""


class CountRows(NamedTuple):
    """Standardized inputs (N, d), counts (N,), and their exposures (N,), in float64."""

    x: Tensor
    y: Tensor
    exposure: Tensor

    def some(self, count: int) -> CountRows:
        """Random rows, up to so many."""
        if count >= len(self.x):
            return self
        chosen = random_rows(len(self.x), count)
        return CountRows(*(part[chosen] for part in self))


class CountOptions(NamedTuple):
    """How counts are learned: one of :data:`LIKELIHOODS`, the method, the number of features, and evaluations."""

    likelihood: str
    method: str
    num_features: int
    limit: int


def count_parts(kernel: Kernel, likelihood: str, seed: int) -> Parts:
    """What a model of counts is made of, with one of :data:`LIKELIHOODS`."""
    chosen: Any = PoissonLikelihood() if likelihood == "poisson" else NegativeBinomialLikelihood().double()
    if likelihood != "poisson":
        chosen.dispersion = _DISPERSION
    return Parts(kernel, chosen, ConstantMean().double(), seed)


def with_priors(kernel: Kernel) -> Kernel:
    r"""The kernel, with weak priors, by which few events leave it smooth, and of the size of usual rates.

    .. math:: \log \ell \sim N(\sqrt 2 + \tfrac12 \log d, 3), \qquad \log \sigma^2 \sim N(0, 1)

    for lengthscales of standardized inputs, d at a time, and output scales.

    Source: Hvarfner et al., Vanilla Bayesian Optimization Performs Great in High Dimensions, 2024, for lengthscales.
    """
    for part in kernel.modules():
        if isinstance(part, ScaleKernel):
            part.register_prior("outputscale_prior", LogNormalPrior(0.0, 1.0), _outputscale, _set_outputscale)
        if isinstance(part, Kernel) and part.has_lengthscale and part.raw_lengthscale.requires_grad:
            center = math.sqrt(2.0) + 0.5 * math.log(part.raw_lengthscale.numel())
            prior = LogNormalPrior(center, math.sqrt(3.0))
            part.register_prior("lengthscale_prior", prior, _lengthscale, _set_lengthscale)
            part.lengthscale = math.exp(center - 1.0)
    return kernel.double()


def levels_kernel(kernel: str | Kernel, num_columns: int, levels: list[list[int]]) -> str | Kernel:
    """The kernel that a name stands for where there are levels, see :func:`kernel_of_levels`, with its priors."""
    made = kernel_of_levels(kernel, num_columns, levels)
    return with_priors(made) if isinstance(made, Kernel) and made is not kernel else made


def learned_parts(
    candidates: Sequence[Parts], rows: CountRows, options: CountOptions, deadline: Deadline
) -> tuple[Parts, FitSummary | None]:
    """The parts with the kernel of the largest evidence, and how their parameters were learned.

    Without events there is nothing to learn.
    """
    if not bool(rows.y.any()):
        return candidates[0], None
    taught, chosen, limit = rows.some(_num_taught(rows.y)), candidates[0], options.limit
    few = taught.some(max(_CHOICE_ROWS, len(taught.x) // _FEW))
    if deadline.is_set:
        seconds = _TIMES * _seconds(chosen, few, _CHOICE_WIDTH, options)
        if not deadline.share(_CHOICE_SHARE).allows(len(candidates) * _CHOICE_EVALUATIONS * seconds):
            candidates = candidates[:1]
    if len(candidates) > 1:
        chosen = _best(candidates, few, options)
    if deadline.is_set:
        allowed = deadline.share(_TAUGHT_SHARE).left / seconds
        taught = taught.some(int(len(few.x) * max(1.0, allowed / _ENOUGH_EVALUATIONS)))
        limit = max(_FEWEST_EVALUATIONS, min(limit, int(allowed * len(few.x) / len(taught.x))))
    summary = _learn(chosen, taught, _TAUGHT_WIDTH, options, limit)
    return _simpler(chosen, taught, options) if options.likelihood == "auto" else chosen, summary


@torch.no_grad()
def fitted_model(parts: Parts, rows: CountRows, options: CountOptions, deadline: Deadline) -> LaplaceGP:
    """A model fitted to all rows, as wide as time allows, or that of one rate where they are more probable by it."""
    width = options.num_features
    if deadline.is_set:
        some = rows.some(max(_CHOICE_ROWS, len(rows.x) // _PARTS))
        seconds = _seconds(parts, some, _CHOICE_WIDTH, options) * len(rows.x) / len(some.x)
        while width > _CHOICE_WIDTH and seconds * (width / _CHOICE_WIDTH) ** 2 > deadline.left:
            width //= 2
    model = _conditioned(_model(parts, rows, width, options), rows)
    of_one_rate = parts.likelihood(torch.zeros_like(rows.y), exposure=rows.exposure).log_prob(rows.y).sum()
    scaled = [part for part in parts.kernel.modules() if isinstance(part, ScaleKernel)]
    scales = [part for part in scaled if part.raw_outputscale.requires_grad]
    if scales and model.log_marginal_likelihood() < of_one_rate:
        parts.mean.initialize(constant=0.0)
        for part in scales:
            part.outputscale = _NO_FUNCTION
        _conditioned(model, rows)
    return model


@torch.no_grad()
def count_predictive(model: Any, x: Tensor, exposure: Tensor, missing: Imputations | None = None) -> CountPredictive:
    """New counts of exposures (N,), as the model has them, at standardized inputs (N, d).

    :param missing: standardized inputs of rows with missing cells, of which the moments of log rates are pooled.
    """
    found = _log_moments(model, x)
    if missing is not None:
        parts = [_log_moments(model, complete) for complete in missing.x]
        found = found.imputed(missing.rows, missing.is_marked, parts, torch.ones(1))
    mean, variance = (part.squeeze(-1) for part in found)
    return CountPredictive(model.likelihood, mean + exposure.log(), variance)


def _log_moments(model: Any, x: Tensor) -> Moments:
    """Those of log rates of exposure one at standardized inputs (N, d), (N, 1)."""
    latent = [model.posterior(rows) for rows in x.split(_CHUNK)]
    mean, variance = torch.cat([f.mean for f in latent]), torch.cat([f.variance for f in latent])
    return Moments(mean.unsqueeze(-1), variance.clamp_min(0.0).unsqueeze(-1))


def _model(parts: Parts, rows: CountRows, width: int, options: CountOptions) -> LaplaceGP:
    """A model with so many features of these rows, which it has not seen."""
    width = min(width, options.num_features)
    width = min(width, len(rows.x)) if options.method == "landmarks" else width + width % 2
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*the exact kernel costs less")
        kernel = approximate(parts.kernel, width, method=options.method, train_inputs=rows.x, seed=parts.seed)
    return LaplaceGP(kernel, parts.likelihood, parts.mean)


def _conditioned(model: LaplaceGP, rows: CountRows) -> LaplaceGP:
    return model.condition(rows.x, rows.y, exposure=rows.exposure)


@torch.no_grad()
def _seconds(parts: Parts, rows: CountRows, width: int, options: CountOptions) -> float:
    """What a fit of so many features to rows takes."""
    began = timing.clock()
    _conditioned(_model(parts, rows, width, options), rows)
    return timing.clock() - began


def _learn(
    parts: Parts,
    rows: CountRows,
    width: int,
    options: CountOptions,
    evaluations: int,
) -> FitSummary:
    """Learn the parameters by the evidence of some rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return fit(
            _model(parts, rows, width, options),
            rows.x,
            rows.y,
            exposure=rows.exposure,
            strategy=Evidence(initialize=False),
            max_evaluations=min(evaluations, options.limit),
            progress=False,
        )


def _best(candidates: Sequence[Parts], rows: CountRows, options: CountOptions) -> Parts:
    """The parts by which rows are most probable."""
    best, highest = candidates[0], -math.inf
    for parts in candidates:
        summary = _learn(parts, rows, _CHOICE_WIDTH, options, _CHOICE_EVALUATIONS)
        if summary.log_marginal_likelihood > highest:
            best, highest = parts, summary.log_marginal_likelihood
    return best


@torch.no_grad()
def _simpler(parts: Parts, rows: CountRows, options: CountOptions) -> Parts:
    """Poisson counts in place of negative binomial ones, where the evidence of rows is not lower by them."""
    simpler = parts._replace(likelihood=PoissonLikelihood())
    evidences = [
        float(_conditioned(_model(each, rows, _TAUGHT_WIDTH, options), rows).log_marginal_likelihood())
        for each in (parts, simpler)
    ]
    return simpler if evidences[1] >= evidences[0] else parts


def _num_taught(y: Tensor) -> int:
    """The rows that teach parameters: more of them where they have few events."""
    per_row = float(y.clamp_max(1.0).mean())
    return int(min(_TAUGHT_EVENTS / max(per_row, 1e-9), _MOST_TAUGHT))


def _lengthscale(kernel: Any) -> Tensor:
    value: Tensor = kernel.lengthscale
    return value


def _set_lengthscale(kernel: Any, value: Tensor) -> None:
    kernel.lengthscale = value


def _outputscale(kernel: Any) -> Tensor:
    value: Tensor = kernel.outputscale
    return value


def _set_outputscale(kernel: Any, value: Tensor) -> None:
    kernel.outputscale = value
