"""Predictions averaged over the parameters of a model, in place of those at the most probable ones."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.models import ExactGP
from torch import Tensor

from ..approximation import FeatureKernel
from ..averaging import parameter_draws
from ..averaging.parameter_draws import Floats
from ..models import ParameterAverage
from . import timing
from .ascent import NoValueError
from .composite_likelihood import CompositeLikelihood
from .coordinate_prior import CoordinatePrior
from .exact_regression import ExactRegression, exact_regression
from .objectives import Objective, WeightSpaceObjective
from .run import Maximization
from .session import Stage, Training
from .starts import random_rows
from .strategies import Strategy, Task

_MOST_ROWS = 1500
_DRAWS, _PROPOSALS = (8, 24, 7_200), (64, 512, 60_000)
"""How many there are at the least and at the most, and in between how many rows they have together."""
_FEW_ROWS = 300
"""Of more than twice as many rows the search begins with so many."""
_GRADIENT = 3.0
"""How many times a likelihood a gradient takes."""
_SHARE = 0.5
"""The part of a time limit in which the most probable parameters are found."""
_LOST = 1e-6
"""The part of the prior variance that features at their landmarks lack by rounding."""


@dataclass(frozen=True, kw_only=True)
class Average(Strategy):
    r"""The average over the parameters of an exact model, for few rows.

    .. math:: p(y_* \mid y) = \int p(y_* \mid y, \theta)\, p(\theta \mid y)\, d\theta
        \approx \frac1S \sum_s p(y_* \mid y, \theta_s)

    The model ends at the most probable parameters, and predicts with these as after any other strategy. The average is
    ``summary.average``, a :class:`rfgp.models.ParameterAverage`, whose error bars know that parameters are learned.

    Priors are those that are registered. A parameter without has a weak one: normal with a standard deviation of 1.5,
    for the logarithm of positive parameters, and in standard deviations of the targets for means. Its center is where
    training starts: median distances of rows for lengthscales, the variance of the targets for output scales and a
    tenth of it for noise, their mean for means, and GPyTorch's default for all else. Densities are those of the
    logarithms of positive parameters. The S draws, 24 of up to 300 rows and 8 of 900 and more, are by importance
    resampling of a Student's t distribution at the most probable parameters; one at a bound of its constraint stays
    close to it.

    For an ExactGP, or a WeightSpaceGP with landmarks at all rows, of up to 1,500 rows with one target and a
    GaussianLikelihood, in float64. With a short time limit parameters are those of fewer rows.

    :param initialize: whether the search starts from the data.
    :raises ValueError: by :func:`rfgp.fit`, for other models; the model stays as it was.

    Source: Tierney and Kadane (1986); Lalchand and Rasmussen (2020), fully Bayesian Gaussian process regression.

    >>> import gpytorch, rfgp, torch
    >>> class Model(gpytorch.models.ExactGP):
    ...     def __init__(self, x, y):
    ...         super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
    ...         self.mean_module = gpytorch.means.ConstantMean()
    ...         self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(ard_num_dims=2))
    ...     def forward(self, x):
    ...         return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))
    >>> x = torch.rand(30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> model = Model(x, x.sum(-1)).double()
    >>> average = rfgp.fit(model, strategy="average").average
    >>> found = average.predictive(torch.tensor([[0.5, 0.5], [9.0, 9.0]], dtype=torch.float64))
    >>> bool(found.icdf(0.025)[0] < 1.0 < found.icdf(0.975)[0]), bool(found.stddev[0] < found.stddev[1])
    (True, True)
    """

    def objective(self, task: Task) -> Objective:
        model = task.model
        is_exact = isinstance(model, ExactGP)
        objective = super().objective(task) if is_exact else _ExactEvidence(model, task.x, task.y, task.noise)
        _check(objective, task.noise is not None)
        objective.prior = CoordinatePrior(objective)
        return objective

    def stages(self, training: Training) -> Iterable[Stage]:
        objective = training.objective
        num_draws, num_proposals = (_count(objective.num_rows, *sizes) for sizes in (_DRAWS, _PROPOSALS))
        deadline = training.deadline.share(_SHARE)
        if objective.num_rows > 2 * _FEW_ROWS and training.limit > 1 and training.has_regression:
            rows = random_rows(objective.num_rows, _FEW_ROWS).unsqueeze(0)
            subset = CompositeLikelihood(training.observations, rows)
            subset.prior = objective.prior
            yield Stage(subset, "subset", evaluations=training.limit // 2, deadline=deadline.share(_SHARE))
        yield Stage(objective, "mode", deadline=deadline)
        began, posterior = timing.clock(), _CoordinatePosterior(training.runs[-1])
        if training.deadline.is_set:
            affordable = _GRADIENT * (training.deadline.left / posterior.run.seconds - len(posterior.mode))
            num_proposals = min(num_proposals, max(num_draws, int(affordable)))
        vectors = parameter_draws(posterior, posterior.mode, num_draws, num_proposals).vectors
        members = [posterior.model_at(vector) for vector in vectors]
        posterior.run.keep_best()
        training.average = ParameterAverage(members, objective.x.shape[-1])
        training.add_stage("average", posterior.rows, began, len(members), num_proposals, "draws")


def _count(num_rows: int, least: int, most: int, together: int) -> int:
    """How many draws or proposals there are."""
    return min(most, max(least, together // num_rows))


class _ExactEvidence(WeightSpaceObjective):
    """The evidence of a weight-space model whose features lose nothing, by its exact kernel, which is faster."""

    growth: ClassVar[float] = 3.0

    @functools.cached_property
    def regression(self) -> ExactRegression:
        """The rows as the exact kernel sees them."""
        return exact_regression(self)

    def evidence(self, rows: Tensor | None = None) -> Tensor:
        every = torch.arange(self.num_rows, device=self.x.device) if rows is None else rows
        return self.regression.log_densities(every.unsqueeze(0), len(every)).sum()


class _CoordinatePosterior:
    """The density of the coordinates of a model, given the rows of the maximization that has found the mode."""

    def __init__(self, run: Maximization) -> None:
        self.run, self.mode = run, run.coordinates.values()
        self.count = run.objective.num_rows if run.rows is None else len(run.rows)

    @property
    def rows(self) -> str:
        """Which rows, in words."""
        return "all rows" if self.run.rows is None else f"{self.count} rows"

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """The least and the largest value of each coordinate."""
        return [*zip(self.run.coordinates.lower.tolist(), self.run.coordinates.upper.tolist(), strict=True)]

    def loss(self, vector: Floats, has_gradient: bool = True) -> tuple[float, Floats]:
        """Minus the log density, and its gradient; infinite outside of the bounds."""
        lower, upper = self.run.coordinates.lower, self.run.coordinates.upper
        nowhere = math.inf, np.zeros_like(vector)
        if (vector < lower).any() or (vector > upper).any():
            return nowhere
        if not has_gradient:
            return -self.run.log_density(vector), nowhere[1]
        try:
            value, gradient, _ = self.run.evaluate(vector, self.run.rows)
        except NoValueError:
            return nowhere
        return -self.count * value, -self.count * gradient

    @torch.no_grad()
    def model_at(self, vector: Floats) -> torch.nn.Module:
        """A copy of the model with other parameters, conditioned on all rows."""
        self.run.assign(vector)
        self.run.objective.finish()
        return copy.deepcopy(self.run.model)


def _check(objective: Objective, has_noise: bool) -> None:
    """A ValueError for what has no average."""
    model, x = objective.model, objective.x
    if has_noise:
        raise ValueError("expected no noise and weights for an average, got some; leave them out")
    if type(model.likelihood) is not GaussianLikelihood:
        raise _refused("a GaussianLikelihood", type(model.likelihood).__name__)
    if x.dim() != 2 or objective.outputs.shape != (len(x), 1) or len(getattr(objective, "inputs", (x,))) > 1:
        raise _refused("one tensor of inputs and one target for each row", "others")
    if objective.outputs.is_complex() or bool(objective.outputs.isnan().any()):
        raise _refused("real targets without NaN", "others")
    if len(x) > _MOST_ROWS:
        raise _refused(f"at most {_MOST_ROWS} rows", f"{len(x)}")
    if any(tensor.dtype != torch.float64 for tensor in (x, objective.outputs, *model.parameters())):
        raise _refused("model and rows of float64", "others, which .double() converts")
    if any(batch for batch in (getattr(part, "batch_shape", ()) for part in model.modules())):
        raise _refused("a model without batch shape", "one with")
    if isinstance(model, ExactGP):
        if any(isinstance(part, FeatureKernel) for part in model.modules()):
            raise _refused("an ExactGP with an exact kernel", "features")
    elif _loses(model.covar_module, x):
        raise _refused('features of method="landmarks" with train_inputs=x and one for each row', "others")


def _refused(wanted: str, got: str) -> ValueError:
    return ValueError(f'expected {wanted} for strategy="average", got {got}; use strategy="evidence"')


@torch.no_grad()
def _loses(kernel: FeatureKernel, x: Tensor) -> bool:
    """Whether features lose something of the kernel at rows, or would with shorter lengthscales."""
    residual = kernel.residual_variance(x) if kernel.has_residual_covariance else None
    if residual is None or kernel.num_scalar_features < len(x.unique(dim=0)):
        return True
    return bool((residual > _LOST * kernel.exact_kernel(x, diag=True)).any())
