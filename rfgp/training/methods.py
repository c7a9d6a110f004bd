"""How each kind of model is trained: the strategies that it takes, and what they maximize."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpytorch.models import ExactGP
from torch import Tensor

from .._support import checks
from ..models import HeteroscedasticGP, LaplaceGP, WeightSpaceGP, WeightSpaceVariationalGP
from . import auto
from .auto import Auto
from .average import Average
from .bound import BoundObjective, WeightsAlone, has_parameters, is_exact
from .exact_stages import Blocks, Subset
from .few_rows import FromFewRows
from .grid import GridEvidence
from .heteroscedastic import NoiseObjective
from .laplace import LaplaceObjective
from .leave_out import LeaveOut
from .loader import LoaderObjective
from .minibatches import Minibatches
from .neighbors import Neighbors
from .objectives import ExactObjective, Objective, WeightSpaceObjective
from .strategies import Evidence, Strategy, Task

NAMES: dict[str, type[Strategy]] = {
    "auto": Auto,
    "evidence": Evidence,
    "subset": Subset,
    "blocks": Blocks,
    "neighbors": Neighbors,
    "leave_one_out": LeaveOut,
    "minibatches": Minibatches,
    "average": Average,
}
"""The short forms of strategies."""


def strategy_of(strategy: Any) -> Strategy:
    """A strategy, from itself or its short form."""
    if isinstance(strategy, Strategy):
        return strategy
    return NAMES[checks.choice("strategy", strategy, tuple(NAMES))]()


@dataclass(frozen=True)
class Method:
    """How a kind of model is trained.

    ``evidence`` makes its objective; ``strategies`` are those of this package that it takes, beside those of others;
    ``chosen`` is what a strategy stands for with the data of a task.
    """

    model: type
    evidence: Callable[[Task], Objective]
    strategies: tuple[type[Strategy], ...]
    takes_noise: bool = False
    chosen: Callable[[Task, Strategy], Strategy] = lambda task, strategy: strategy

    def strategy(self, task: Task, strategy: Strategy) -> Strategy:
        """The strategy for a task, or a ValueError where the model does not take it, or not with these data."""
        name = self.model.__name__
        if isinstance(strategy, Evidence) and strategy.executor is not None and self.model is not WeightSpaceGP:
            raise ValueError(f"expected a WeightSpaceGP beside executor, got a {name}; leave executor out")
        if type(strategy) in NAMES.values() and not isinstance(strategy, (Auto, *self.strategies)):
            shorts = ", ".join(f'"{short}"' for short, kind in NAMES.items() if kind in (Auto, *self.strategies))
            got = type(strategy).__name__
            raise ValueError(f"expected strategy to be one of {shorts} for a {name}, got {got}; choose one")
        if task.noise is not None and not self.takes_noise:
            raise ValueError(f"expected no noise and weights for a {name}, got some; its likelihood has or learns it")
        if task.exposure is not None and self.model is not LaplaceGP:
            raise ValueError(
                f"expected no exposure for a {name}, got some; use a LaplaceGP with a likelihood of counts, such as a "
                "NegativeBinomialLikelihood"
            )
        return self.chosen(task, strategy)


def method_of(model: Any) -> Method:
    """How a model is trained, or a ValueError where it has neither evidence nor bound."""
    for method in _METHODS:
        if isinstance(model, method.model):
            return method
    raise ValueError(
        f"expected a model of rfgp.models that has an evidence or a bound, or a GPyTorch ExactGP, got "
        f"{type(model).__name__}; pass a model"
    )


def _weight_space_evidence(task: Task) -> Objective:
    kind = WeightSpaceObjective if isinstance(task.x, Tensor | None) else LoaderObjective
    return kind(task.model, task.x, task.y, task.noise)


def _weight_space(task: Task, strategy: Strategy) -> Strategy:
    """On a grid, that of its frequencies; from a loader, the evidence."""
    is_loader = not isinstance(task.x, Tensor | None)
    if is_loader and isinstance(strategy, Subset | Blocks | Neighbors | LeaveOut | Average):
        raise ValueError(
            f'expected strategy="evidence" for batches from a loader, got {type(strategy).__name__}; pass tensors '
            "x and y for it"
        )
    if type(strategy) in (Auto, Evidence) and task.model.has_grid and task.model.summed_residual is None:
        return GridEvidence(initialize=strategy.initialize, executor=getattr(strategy, "executor", None))
    return _evidence(task, strategy) if is_loader else strategy


def _evidence(task: Task, strategy: Strategy) -> Strategy:
    """The evidence is the one thing that "auto" can take."""
    return Evidence(initialize=strategy.initialize) if type(strategy) is Auto else strategy


def _laplace_evidence(task: Task) -> Objective:
    return LaplaceObjective(task.model, task.x, task.y, task.exposure)


def _laplace(task: Task, strategy: Strategy) -> Strategy:
    """Few rows where there are many, or blocks."""
    is_large = isinstance(task.x, Tensor) and task.x.dim() == 2 and len(task.x) > auto.SMALL
    is_few = is_large or task.model.block_size is not None
    if type(strategy) is Subset or (type(strategy) is Auto and is_few):
        return FromFewRows(initialize=strategy.initialize)
    return _evidence(task, strategy)


def _bound(task: Task) -> Objective:
    if not isinstance(task.x, Tensor) or not is_exact(task.model):
        raise ValueError(
            "expected tensors, a full covariance of the weights and a likelihood of one function for the bound of all "
            "rows, got others; leave strategy out"
        )
    return BoundObjective(task.model, task.x, task.y)


def _variational(task: Task, strategy: Strategy) -> Strategy:
    """The bound of all rows, which needs a full covariance and no random draws, or minibatches."""
    if type(strategy) is Auto:
        is_possible = isinstance(task.x, Tensor) and is_exact(task.model)
        if not is_possible or len(task.x) > auto.SMALL:
            return Minibatches(initialize=strategy.initialize)
    if type(strategy) in (Auto, Evidence) and not has_parameters(task.model):
        return WeightsAlone()
    return _evidence(task, strategy)


_METHODS = (
    Method(
        WeightSpaceGP,
        _weight_space_evidence,
        (Evidence, Subset, Blocks, Neighbors, LeaveOut, Average),
        takes_noise=True,
        chosen=_weight_space,
    ),
    Method(WeightSpaceVariationalGP, _bound, (Evidence, Minibatches), chosen=_variational),
    Method(LaplaceGP, _laplace_evidence, (Evidence, Subset), chosen=_laplace),
    Method(HeteroscedasticGP, lambda task: NoiseObjective(task.model, task.x, task.y), (Evidence,), chosen=_evidence),
    Method(
        ExactGP,
        lambda task: ExactObjective(task.model, task.x, task.y),
        (Evidence, Subset, Blocks, LeaveOut, Average),
        chosen=_evidence,
    ),
)
