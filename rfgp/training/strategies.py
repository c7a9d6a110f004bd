"""What a strategy of training is, and the maximization of the evidence or of leave-out densities of all rows."""

from __future__ import annotations

import abc
import functools
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from tqdm.auto import tqdm

from .._support import checks
from .ascent import NoValueError
from .objectives import Objective
from .rollback import Rollback
from .session import Training
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
    """What is to be trained, on which data, and how long; ``objective`` makes what a strategy maximizes."""

    model: Any
    x: Any
    y: Any
    noise: Any
    objective: Callable[[Task, Maximization], tuple[Objective, Maximization]]
    limit: int
    deadline: Deadline
    is_silent: bool | None

    def bar(self, total: int, unit: str) -> Any:
        """A progress bar."""
        return tqdm(total=total, desc="fit", unit=unit, disable=self.is_silent, leave=False)


@dataclass(frozen=True, kw_only=True)
class Strategy(abc.ABC):
    """From what the parameters of a model are learned.

    :param initialize: whether parameters with default values start from moments of the data and distances of inputs, at
        several scales; else training starts from the present values.
    """

    initialize: bool = True

    def __post_init__(self) -> None:
        checks.flag("initialize", self.initialize)

    @abc.abstractmethod
    def fit(self, task: Task) -> FitSummary:
        """Train the model of a task; after an error it has the best parameters that were seen, or those from before."""


class Maximization(Strategy):
    """A strategy that maximizes objectives by L-BFGS."""

    @abc.abstractmethod
    def learn(self, training: Training) -> float:
        """Learn the parameters, and leave the model fitted; its evidence."""

    def fit(self, task: Task) -> FitSummary:
        began, before, training = clock(), Rollback(task.model), None
        try:
            objective, strategy = task.objective(task, self)
            with task.bar(min(task.limit, _LIKELY), "eval") as bar:
                report = functools.partial(show, bar, limit=task.limit)
                training = Training(objective, self.initialize, task.limit, task.deadline, report)
                value = strategy.learn(training)
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
class Evidence(Maximization):
    """The log marginal likelihood of the model and all rows, or the evidence lower bound of a variational model.

    :param executor: any executor of ``concurrent.futures``, whose workers sum the rows of a WeightSpaceGP for every
        evaluation; x is then a source, a list of partitions, or tensors. Default: none, all in this process.
    :param initialize: whether starting values come from the data.

    >>> Evidence(initialize=False).executor is None
    True
    """

    executor: Executor | None = None

    def learn(self, training: Training) -> float:
        return training.maximize()


@dataclass(frozen=True, eq=False)
class LeaveOut(Maximization):
    """The sum of the log densities of rows, or of groups of rows, each given all others.

    It judges predictions, and holds up better where the model is wrong. For one output with Gaussian or fixed noise,
    and tensors; the summary has its value in place of the evidence.

    :param groups: the label of the group of every row, (N,), or the number of random folds; default: every row alone.
    :param initialize: whether starting values come from the data.

    >>> LeaveOut(groups=5).groups
    5
    """

    groups: Tensor | int | None = None

    def learn(self, training: Training) -> float:
        return training.maximize()


def show(bar: Any, value: float, limit: int = 0) -> None:
    """Count an evaluation or epoch; where more than the likely number are made, up to the limit, the count goes on."""
    bar.update()
    if bar.total is not None and bar.total <= bar.n < limit:
        bar.total = min(2 * bar.total, limit)
    bar.set_postfix(evidence=f"{value:.6g}")
