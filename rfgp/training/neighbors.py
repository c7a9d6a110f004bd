"""The strategy "neighbors": rows are predicted from those near them, with the exact kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch
from gpytorch.kernels import IndexKernel, Kernel, MultitaskKernel
from gpytorch.likelihoods import DirichletClassificationLikelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean, ZeroMean
from torch import Tensor

from .classes import Classes
from .composite_likelihood import Observations
from .exact_regression import ExactRegression, exact_regression
from .independent_outputs import MaskedOutputs, RotatedOutputs
from .noise_check import has_one_noise, raise_noise
from .objectives import WeightSpaceObjective
from .session import Stage, Training
from .starts import center_inputs, start_from_data
from .strategies import Strategy, Task
from .timing import clock
from .tuning import PlannedStage, Tuning

_STEPS = (PlannedStage(3000, 16, True), PlannedStage(6000, 8, False), PlannedStage(6000, 8, False))
_MORE_NEIGHBORS = (PlannedStage(6000, 15, False, 32), PlannedStage(4000, 10, False, 64))
"""Of one output, whose scales and noise more neighbors tell better."""


class NeighborObjective(WeightSpaceObjective):
    """Rows given those near them; ``value`` is what training finds, the mean log density of a row."""

    quantity = "log density of rows given those near them"
    value = math.nan

    def start(self) -> None:
        """Set parameters with default values from the data."""
        start_from_data(self.model, self.model.covar_module.exact_kernel, self.x, self.moments)

    def observations(self, initialize: bool = True) -> Observations:
        """How rows are predicted from others, or a ValueError for another model.

        :param initialize: whether the covariances of several outputs come from the data, not from the model.
        """
        model, likelihood = self.model, self.model.likelihood
        kernel: Kernel = model.covar_module.exact_kernel
        if isinstance(likelihood, DirichletClassificationLikelihood):
            is_shared = not kernel.batch_shape and likelihood.second_noise_covar is None
            if not is_shared or type(model.mean_module) not in (ZeroMean, ConstantMean):
                raise _refused("classes that share a kernel, with constant means and no further noise")
            return Classes(self, kernel, self.y)
        if isinstance(kernel, MultitaskKernel):
            is_free = type(kernel.task_covar_module) is IndexKernel and not kernel.data_covar_module.batch_shape
            if type(likelihood) is not MultitaskGaussianLikelihood or not is_free or self.y.is_complex():
                raise _refused("a MultitaskKernel that learns its covariance, with a MultitaskGaussianLikelihood")
            return (MaskedOutputs if self.y.isnan().any() else RotatedOutputs)(self, kernel, initialize)
        regression = exact_regression(self)
        if not regression.is_plain:
            raise _refused("one output, a MultitaskKernel or Dirichlet classes")
        return regression

    def finish(self) -> Tensor:
        """Condition the model, without the evidence of all rows."""
        self.model.condition(self.x, self.y, self.noise)
        return torch.tensor(self.value * self.num_rows)


class UnconditionedObjective(NeighborObjective):
    """The same, which leaves the model without its fit to all rows."""

    leaves_fit = False

    def finish(self) -> Tensor:
        return torch.tensor(self.value * self.num_rows)


@dataclass(frozen=True, kw_only=True)
class Neighbors(Strategy):
    r"""The log densities of rows given those that are nearest in units of the lengthscales, with the exact kernel.

    .. math:: \sum_i \log p(y_i \mid y_{n(i)})

    First all lengthscales are multiplied by one number; then each is learned, where held-out rows are predicted better.
    One output takes 16 neighbors, then 32 and 64; a row whose inputs are those of another row is no target there, but
    teaches the noise at the end. For one output, for several with a MultitaskKernel, and for Dirichlet classes, whose
    ``alpha_epsilon`` is learned too. In place of the evidence the summary has the mean log density of held-out rows
    times the number of all.

    :param initialize: whether starting values come from the data; else lengthscales are learned from those there are.

    >>> Neighbors().initialize
    True
    """

    def objective(self, task: Task) -> NeighborObjective:
        return NeighborObjective(task.model, task.x, task.y, task.noise)

    def stages(self, training: Training) -> Iterator[Stage]:
        objective = cast(NeighborObjective, training.objective)
        if training.initialize:
            objective.start()
        center_inputs(training.model, objective.x)
        deadline = training.deadline.earlier(training.fit_seconds)
        observations = objective.observations(training.initialize)
        tuning = Tuning(observations, deadline, has_start=not training.initialize)
        training.initialize = False
        is_plain = isinstance(observations, ExactRegression) and observations.is_plain
        steps = _STEPS if self.initialize else () if is_plain else _STEPS[-1:]
        for stage in tuning.stages(steps + _MORE_NEIGHBORS if is_plain else steps):
            if training.left < 1:
                break
            yield stage
        began = clock()
        tuning.write(deadline)
        training.add_stage("neighbors", f"{len(tuning.held)} held-out rows", began, tuning.value)
        if isinstance(observations, ExactRegression) and has_one_noise(observations) and deadline.allows():
            raise_noise(training, observations, torch.arange(len(objective.x)), tuning.near)
        training.ascent, objective.value = tuning.ascent, tuning.value


@dataclass(frozen=True, kw_only=True)
class ParametersAlone(Neighbors):
    """The parameters that :class:`Neighbors` learns, without conditioning the model on all rows.

    :param initialize: whether starting values come from the data.

    >>> ParametersAlone(initialize=False).initialize
    False
    """

    def objective(self, task: Task) -> NeighborObjective:
        return UnconditionedObjective(task.model, task.x, task.y, task.noise)


def _refused(wanted: str) -> ValueError:
    return ValueError(f'expected {wanted} for strategy="neighbors", got another model; use "evidence" or "subset"')
