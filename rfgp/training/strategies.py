"""What a strategy of training is, and the maximization of the evidence of all rows."""

from __future__ import annotations

import abc
import functools
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from tqdm.auto import tqdm

from .._support import checks
from .ascent import NoValueError
from .loader import LoaderObjective
from .objectives import Objective
from .rollback import Rollback
from .session import Stage, Training
from .summary import FitSummary
from .timing import Deadline, clock

_LIKELY = 50
"""How many evaluations most searches take."""
_NOT_FINITE = (
    "expected a finite evidence at the start, got none; rescale the data, or start from other values with "
    "strategy=rfgp.training.Evidence(initialize=False)"
)


@dataclass(frozen=True)
class Task:
    """What is to be trained, on which data, and how long; ``evidence`` makes the evidence of all rows."""

    model: Any
    x: Any
    y: Any
    noise: Any
    evidence: Callable[[Task], Objective]
    limit: int
    deadline: Deadline
    is_silent: bool | None
    exposure: Any = None

    def bar(self, total: int, unit: str) -> Any:
        """A progress bar."""
        return tqdm(total=total, desc="fit", unit=unit, disable=self.is_silent, leave=False)


@dataclass(frozen=True, kw_only=True)
class Strategy(abc.ABC):
    """From what the parameters of a model are learned: a short list of stages, each of which L-BFGS maximizes.

    A subclass yields them from ``stages``, and is passed to :func:`rfgp.fit` as it is.

    :param initialize: whether parameters with default values start from moments of the data and distances of inputs, at
        several scales; else training starts from the present values.

    >>> import gpytorch, rfgp, torch
    >>> from rfgp.training import CompositeLikelihood, Stage, Strategy
    >>> class SmallThenAll(Strategy):
    ...     def stages(self, training):
    ...         rows = torch.randperm(training.objective.num_rows)[:20]
    ...         yield Stage(CompositeLikelihood(training.observations, rows.unsqueeze(0)), "small", evaluations=10)
    ...         yield Stage(training.objective, "all", evaluations=5)
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=16, input_dim=1, seed=0)
    >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())
    >>> x = torch.linspace(-1, 1, 50).unsqueeze(-1)
    >>> summary = rfgp.fit(model, x, x.squeeze(-1) ** 2, strategy=SmallThenAll())
    >>> [(stage.name, stage.rows) for stage in summary.stages]
    [('small', '20 rows'), ('all', 'all rows')]
    """

    initialize: bool = True

    def __post_init__(self) -> None:
        checks.flag("initialize", self.initialize)

    @abc.abstractmethod
    def stages(self, training: Training) -> Iterable[Stage]:
        """The stages, in turn: between two of them the model has the best parameters so far."""

    def objective(self, task: Task) -> Objective:
        """The evidence of all rows, or what takes its place."""
        return task.evidence(task)

    def fit(self, task: Task) -> FitSummary:
        """Train the model of a task; after an error it has the best parameters that were seen, or those from before."""
        began, before, training = clock(), Rollback(task.model), None
        try:
            with task.bar(min(task.limit, _LIKELY), "eval") as bar:
                report = functools.partial(show, bar, limit=task.limit)
                training = Training(self.objective(task), self.initialize, task.limit, task.deadline, report)
                training.follow(self.stages(training))
                value = training.finish()
        except BaseException as error:
            if training is None or not training.keep_best():
                before.restore()
            if isinstance(error, NoValueError):
                raise (error.__cause__ or ValueError(_NOT_FINITE)) from None
            raise
        for remark in training.remarks(value):
            warnings.warn(remark, stacklevel=3)
        return training.summary(value, clock() - began)


@dataclass(frozen=True, kw_only=True)
class Evidence(Strategy):
    """The log marginal likelihood of the model and all rows, or the evidence lower bound of a variational model.

    :param executor: any executor of ``concurrent.futures``, whose workers sum the rows of a WeightSpaceGP for every
        evaluation; x is then a source, a list of partitions, or tensors. Default: none, all in this process.
    :param initialize: whether starting values come from the data.

    >>> Evidence(initialize=False).executor is None
    True
    """

    executor: Executor | None = None

    def objective(self, task: Task) -> Objective:
        if self.executor is None:
            return super().objective(task)
        return LoaderObjective(task.model, task.x, task.y, task.noise, self.executor)

    def stages(self, training: Training) -> Iterable[Stage]:
        yield Stage(training.objective)


def show(bar: Any, value: float, limit: int = 0) -> None:
    """Count an evaluation or epoch; where more than the likely number are made, up to the limit, the count goes on."""
    bar.update()
    if bar.total is not None and bar.total <= bar.n < limit:
        bar.total = min(2 * bar.total, limit)
    bar.set_postfix(evidence=f"{value:.6g}")
