"""How each kind of model is trained: the strategies that it takes, and what they maximize."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpytorch.models import ExactGP
from torch import Tensor

from .._support import checks
from ..models import HeteroscedasticGP, LaplaceGP, WeightSpaceGP, WeightSpaceVariationalGP
from .auto import Auto
from .bound import BoundObjective, WeightsAlone, has_parameters, is_exact
from .exact_regression import exact_regression
from .exact_stages import Blocks, Subset
from .grid import GridEvidence
from .heteroscedastic import NoiseObjective
from .laplace import LaplaceObjective
from .latent_subset import FromFewRows
from .leave_out import ExactLeaveOneOutObjective, LeaveOutObjective
from .loader import loader_objective
from .minibatches import Minibatches
from .neighbors import NeighborObjective, Neighbors
from .objectives import ExactObjective, Objective, WeightSpaceObjective
from .strategies import Evidence, LeaveOut, Maximization, Strategy, Task

SMALL = 2000
"""Up to so many rows "auto" takes the evidence."""
NAMES: dict[str, type[Strategy]] = {
    "auto": Auto,
    "evidence": Evidence,
    "subset": Subset,
    "blocks": Blocks,
    "neighbors": Neighbors,
    "leave_one_out": LeaveOut,
    "minibatches": Minibatches,
}
"""The short forms of strategies."""


def strategy_of(strategy: Any) -> Strategy:
    """A strategy, from itself or its short form."""
    if isinstance(strategy, Strategy):
        return strategy
    return NAMES[checks.choice("strategy", strategy, tuple(NAMES))]()


@dataclass(frozen=True)
class Method:
    """How a kind of model is trained; ``chosen``: what a strategy stands for, given model and inputs."""

    model: type
    objective: Callable[[Task, Maximization], tuple[Objective, Maximization]]
    strategies: tuple[type[Strategy], ...]
    takes_noise: bool = False
    takes_executor: bool = False
    chosen: Callable[[Any, Any, Strategy], Strategy] = lambda model, x, strategy: strategy

    def strategy(self, task: Task, strategy: Strategy) -> Strategy:
        """The strategy for a task, or a ValueError where the model does not take it, or not with these data."""
        name = self.model.__name__
        if isinstance(strategy, Evidence) and strategy.executor is not None and not self.takes_executor:
            raise ValueError(f"expected a WeightSpaceGP beside executor, got a {name}; leave executor out")
        if not isinstance(strategy, (Auto, *self.strategies)):
            allowed = ", ".join(f'"{short}"' for short, kind in NAMES.items() if kind in (Auto, *self.strategies))
            got = type(strategy).__name__
            raise ValueError(f"expected strategy to be one of {allowed} for a {name}, got {got}; choose one")
        if task.noise is not None and not self.takes_noise:
            raise ValueError(f"expected no noise and weights for a {name}, got some; its likelihood has or learns it")
        return self.chosen(task.model, task.x, strategy)


def method_of(model: Any) -> Method:
    """How a model is trained, or a ValueError where it has neither evidence nor bound."""
    for method in _METHODS:
        if isinstance(model, method.model):
            return method
    raise ValueError(
        f"expected a model of rfgp.models that has an evidence or a bound, or a GPyTorch ExactGP, got "
        f"{type(model).__name__}; pass a model"
    )


def _weight_space(task: Task, strategy: Maximization) -> tuple[Objective, Maximization]:
    model, x, y, noise = task.model, task.x, task.y, task.noise
    if isinstance(strategy, LeaveOut):
        return LeaveOutObjective(model, x, y, noise, strategy.groups), strategy
    if isinstance(strategy, Neighbors):
        return NeighborObjective(model, x, y, noise), strategy
    executor = strategy.executor if isinstance(strategy, Evidence) else None
    is_on_grid = model.has_grid and model.summed_residual is None
    if executor is not None or not isinstance(x, Tensor | None):
        if not isinstance(strategy, Auto | Evidence):
            raise ValueError(
                f'expected strategy="evidence" for batches from a loader, got {type(strategy).__name__}; pass tensors '
                "x and y for it"
            )
        ways = GridEvidence if is_on_grid else Evidence
        return loader_objective(model, x, y, noise, executor), ways(initialize=strategy.initialize)
    if is_on_grid and isinstance(strategy, Auto | Evidence):
        return WeightSpaceObjective(model, x, y, noise), GridEvidence(initialize=strategy.initialize)
    is_large = isinstance(x, Tensor) and x.dim() == 2 and len(x) > SMALL
    if isinstance(strategy, Auto) and (is_large or model.block_size is not None):
        objective = WeightSpaceObjective(model, x, y, noise)
        try:
            if exact_regression(objective).is_plain:
                return objective, strategy if is_large else Subset()
        except ValueError:
            pass
    chosen = Evidence() if isinstance(strategy, Auto) else strategy
    return WeightSpaceObjective(model, x, y, noise), chosen


def _exact(task: Task, strategy: Maximization) -> tuple[Objective, Maximization]:
    if not isinstance(strategy, LeaveOut):
        return ExactObjective(task.model, task.x, task.y), Evidence() if isinstance(strategy, Auto) else strategy
    if strategy.groups is not None:
        raise ValueError("expected an ExactGP to leave out single rows, got groups; use a WeightSpaceGP")
    return ExactLeaveOneOutObjective(task.model, task.x, task.y), strategy


def _laplace(task: Task, strategy: Maximization) -> tuple[Objective, Maximization]:
    """Few rows where there are many, or blocks."""
    model, x = task.model, task.x
    is_large = isinstance(x, Tensor) and x.dim() == 2 and len(x) > SMALL
    is_few = is_large or model.block_size is not None
    if isinstance(strategy, Subset) or (isinstance(strategy, Auto) and is_few):
        objective = LaplaceObjective(model, x, task.y, is_lazy=True)
        return objective, FromFewRows(initialize=strategy.initialize)
    return LaplaceObjective(model, x, task.y), Evidence(initialize=strategy.initialize)


def _by(objective: Callable[[Any, Any, Any], Objective]) -> Any:
    """The evidence of a model as the one thing to maximize."""
    return lambda task, strategy: (objective(task.model, task.x, task.y), Evidence())


def _variational(model: WeightSpaceVariationalGP, x: Any, strategy: Strategy) -> Strategy:
    """The bound of all rows, which needs a full covariance and no random draws, or minibatches."""
    if isinstance(strategy, Minibatches):
        return strategy
    is_possible = isinstance(x, Tensor) and is_exact(model)
    if isinstance(strategy, Evidence) and not is_possible:
        raise ValueError(
            "expected tensors, a full covariance of the weights and a likelihood of one function for "
            'strategy="evidence", got others; leave strategy out'
        )
    if not is_possible or (isinstance(strategy, Auto) and len(x) > SMALL):
        return Minibatches(initialize=strategy.initialize)
    return Evidence(initialize=strategy.initialize) if has_parameters(model) else WeightsAlone()


_METHODS = (
    Method(
        WeightSpaceGP,
        _weight_space,
        (Evidence, Subset, Blocks, Neighbors, LeaveOut),
        takes_noise=True,
        takes_executor=True,
    ),
    Method(WeightSpaceVariationalGP, _by(BoundObjective), (Evidence, Minibatches), chosen=_variational),
    Method(LaplaceGP, _laplace, (Evidence, Subset)),
    Method(HeteroscedasticGP, _by(NoiseObjective), (Evidence,)),
    Method(ExactGP, _exact, (Evidence, Subset, Blocks, LeaveOut)),
)
