"""Training of variational models from minibatches, step by step."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.likelihoods import SoftmaxLikelihood
from gpytorch.means import ConstantMean
from torch import Tensor

from .._support import checks
from ..approximation.width_warning import quiet
from ..data.batches import batches
from ..inference.latent.variational import expected_log_likelihood, is_deterministic
from ..likelihoods import DirichletClassificationLikelihood
from ..models import WeightSpaceGP, WeightSpaceVariationalGP
from ..passes import Shard
from . import timing
from .ascent import NoValueError
from .bound import BoundObjective, function_values, has_parameters
from .coordinates import Coordinates
from .loader import first_pass
from .moments import data_moments
from .objectives import Objective, WeightSpaceObjective
from .parts import constrained_values, log_prior, parts_of
from .rollback import Rollback
from .run import Maximization
from .session import Stage, Training
from .starts import center_inputs, start_from_data
from .strategies import Strategy, Task, show
from .summary import FitStage, FitSummary
from .timing import NEVER, Deadline

_SMALLEST_BATCH, _LARGEST_BATCH, _FEWEST_BATCHES = 100, 1000, 8
_LEARNING_RATE = 0.05
_FIRST_ROWS, _EVALUATIONS, _LARGEST_WIDTH = 1000, 60, 2048
_SHARE_OF_FIRST_ROWS, _SHARE_OF_BOUND = 0.4, 0.5
"""Of a time limit, what the first rows may take; of the time of a step, what the bound of its rows takes."""
_STEPS_TO_AVERAGE = 4


class RowBatches:
    """Batches of rows x (N, d) and y (N, ...) in a new random order for every pass, of sizes that differ by one."""

    def __init__(self, x: Tensor, y: Tensor, size: int, seed: int = 0) -> None:
        self.x, self.y, self.count = x, y, math.ceil(len(x) / size)
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.x), generator=self.generator).to(self.x.device)
        for rows in order.tensor_split(self.count):
            yield self.x[rows], self.y[rows]


def as_batches(x: Any, y: Any) -> Any:
    """Batches of at most 1,000 rows of tensors x (N, d) and y (N,), eight at least; batches as they are."""
    if not isinstance(x, Tensor):
        if y is not None or not isinstance(x, Iterable):
            raise ValueError(
                f"expected tensors x and y, or batches alone, got {type(x).__name__} and {type(y).__name__}; call "
                "fit(model, x, y) or fit(model, loader)"
            )
        if isinstance(x, Shard):
            raise ValueError(
                "expected the rows of all ranks for a WeightSpaceVariationalGP, got the Shard of one; pass all rows"
            )
        return x
    checks.one_per_row(checks.tensor(y, "y"), checks.inputs(x), "y")
    return RowBatches(x, y, min(max(math.ceil(len(x) / _FEWEST_BATCHES), _SMALLEST_BATCH), _LARGEST_BATCH))


class MinibatchTraining:
    """Steps t of the natural gradient, of size 4/(t + 4), and of Adam with a falling rate, batch by batch.

    Weights without a full covariance are learned by Adam too; without coordinates, the weights alone are learned.
    """

    def __init__(
        self,
        model: WeightSpaceVariationalGP,
        loader: Iterable[Any],
        num_data: int,
        epochs: int,
        coordinates: Coordinates | None,
    ) -> None:
        self.model, self.loader, self.num_data, self.epochs = model, loader, num_data, epochs
        self.coordinates = coordinates
        self.trace: list[float] = []
        self.steps, self.is_late = 0, False
        self.weights = model.weights()
        self.point = None if coordinates is None else torch.from_numpy(coordinates.values()).requires_grad_(True)
        self.parameters: list[Tensor] = [] if self.point is None else [self.point]
        if self.weights.is_diagonal:
            self.parameters += model.variational_parameters()
        self.optimizer = torch.optim.Adam(self.parameters, lr=_LEARNING_RATE) if self.parameters else None

    def run(self, report: Callable[[float], None], deadline: Deadline = NEVER) -> str:
        """Go through the batches, leave the model with what was learned, and say what ended it."""
        try:
            for epoch in range(self.epochs):
                expected = self._epoch(epoch / self.epochs, deadline)
                self.trace.append(expected - float(self.weights.kl_divergence.sum()))
                report(self.trace[-1])
                if self.is_late:
                    return f"stopped at the time limit in epoch {epoch + 1}; raise time_limit to go on"
            return f"{self.epochs} epochs"
        finally:
            if not self.weights.is_diagonal:
                self.model.set_weights(self.weights)

    def _epoch(self, progress: float, deadline: Deadline) -> float:
        """One pass over the batches, as far as there is time; the expected log likelihood of all rows, as estimated."""
        if self.optimizer is not None:
            self.optimizer.param_groups[0]["lr"] = _LEARNING_RATE * (1.0 - progress)
        total, rows = 0.0, 0
        for x, y, _ in batches(self.loader, None, None):
            began = timing.clock()
            total += self._step(x, y)
            rows += len(x)
            self.is_late = not deadline.allows(_SHARE_OF_BOUND * (timing.clock() - began) * self.num_data / len(x))
            if self.is_late:
                break
        return total * self.num_data / rows

    def _step(self, x: Tensor, y: Tensor) -> float:
        """A step for one batch; its expected log likelihood."""
        model, scale = self.model, self.num_data / len(x)
        labels = model.checked_targets(x, y)
        model.zero_grad(set_to_none=True)
        with torch.enable_grad():
            if self.weights.is_diagonal:
                return self._plain_step(x, labels)
            at = model.variational_strategy.at(x)
            expected = expected_log_likelihood(model.likelihood, labels, *at.moments(self.weights))
            gradients = scale * expected.d_mean, scale * expected.d_variance
            target = self.weights.target(at.features, *gradients)
            if self.point is not None:
                _backward(scale * expected.value + self._log_prior() + at.first_order(self.weights, *gradients))
        self._move()
        self.weights = self.weights.stepped(target, _STEPS_TO_AVERAGE / (self.steps + _STEPS_TO_AVERAGE))
        self.steps += 1
        return float(expected.value.detach())

    def _plain_step(self, x: Tensor, labels: Tensor) -> float:
        divergence = float(self.weights.kl_divergence.sum())
        bound = self.model.elbo(x, labels, self.num_data)
        _backward(bound + self._log_prior())
        for parameter in self.model.variational_parameters():
            parameter.grad = None if parameter.grad is None else -parameter.grad / self.num_data
        self._move()
        self.weights = self.model.weights()
        self.steps += 1
        return (float(bound.detach()) + divergence) * len(x) / self.num_data

    def _log_prior(self) -> Tensor:
        return log_prior(parts_of(self.model))

    def _move(self) -> None:
        """A step of Adam."""
        if self.optimizer is None:
            return
        if self.coordinates is not None and self.point is not None:
            self.point.grad = torch.from_numpy(-self.coordinates.gradient() / self.num_data)
        self.optimizer.step()
        if self.coordinates is not None and self.point is not None:
            inside = np.clip(self.point.detach().numpy(), self.coordinates.lower, self.coordinates.upper)
            self.coordinates.assign(inside)
            with torch.no_grad():
                self.point.copy_(torch.from_numpy(inside))


@torch.no_grad()
def full_bound(model: WeightSpaceVariationalGP, loader: Iterable[Any]) -> float:
    """The evidence lower bound of all rows of a loader (x, y)."""
    weights, total = model.weights(), 0.0
    for x, y, _ in batches(loader, None, None):
        at = model.variational_strategy.at(x)
        total += float(
            expected_log_likelihood(model.likelihood, model.checked_targets(x, y), *at.moments(weights)).value
        )
    return total - float(weights.kl_divergence.sum())


def _backward(value: Tensor) -> None:
    if value.requires_grad:
        value.backward()


def _learn_from_first_rows(model: WeightSpaceVariationalGP, x: Tensor, y: Tensor, deadline: Deadline = NEVER) -> None:
    """Maximize the bound of at most 1,000 rows (N, d) and (N,) over all parameters but the weights.

    For a Softmax likelihood it is the evidence of Dirichlet regressions.
    """
    objective = _first_objective(model, x[:_FIRST_ROWS], y[:_FIRST_ROWS])
    if objective is None:
        return
    try:
        with quiet():
            Maximization(objective, True, _EVALUATIONS, deadline=deadline).ascend()
    except NoValueError:
        return


def _first_objective(model: WeightSpaceVariationalGP, x: Tensor, y: Tensor) -> Objective | None:
    kernel, likelihood = model.covar_module, model.likelihood
    if kernel.num_scalar_features > _LARGEST_WIDTH or not any(p.requires_grad for p in kernel.parameters()):
        return None
    if is_deterministic(likelihood):
        return BoundObjective(model, x, y)
    has_own_classes = isinstance(likelihood, SoftmaxLikelihood) and likelihood.mixing_weights is None
    if not has_own_classes or kernel.is_complex or kernel.residual_variance(x[:1]) is not None:
        return None
    regressions = DirichletClassificationLikelihood(num_classes=likelihood.num_classes, dtype=x.dtype)
    classes = torch.Size([likelihood.num_classes])
    mean = ConstantMean(batch_shape=classes).to(x)
    return WeightSpaceObjective(WeightSpaceGP(kernel, regressions, mean), x, y, None)


@dataclass(frozen=True, kw_only=True)
class Minibatches(Strategy):
    """The bound of a variational model, by natural-gradient steps and Adam on minibatches.

    :param epochs: how many times the batches are gone through.
    :param num_data: the number of rows of a loader; default: they are counted once.
    :param initialize: whether starting values come from some of the rows.
    """

    epochs: int = 50
    num_data: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive_integer("epochs", self.epochs)
        if self.num_data is not None:
            checks.positive_integer("num_data", self.num_data)

    def stages(self, training: Training) -> Iterable[Stage]:
        """None: it takes steps in their place."""
        return ()

    def fit(self, task: Task) -> FitSummary:
        """Train, and leave the model in evaluation mode; after an error as it was."""
        began, model, loader, before = timing.clock(), task.model, as_batches(task.x, task.y), Rollback(task.model)
        try:
            (x, y, noise), total = first_pass(loader, self.num_data)
            if noise is not None:
                raise ValueError("expected batches (x, y) for a variational model, got noise too; leave it out")
            labels = model.checked_targets(x, y)
            of_sample = data_moments(x, function_values(model, labels), model.mean_module)
            if self.initialize:
                center_inputs(model, x)
                start_from_data(model, model.covar_module.exact_kernel, x, of_sample)
                _learn_from_first_rows(model, x, labels, task.deadline.share(_SHARE_OF_FIRST_ROWS))
            coordinates = Coordinates(parts_of(model), of_sample) if has_parameters(model) else None
            model.train()
            training = MinibatchTraining(model, loader, total, self.epochs, coordinates)
            with task.bar(self.epochs, "epoch") as bar:
                message = training.run(functools.partial(show, bar), task.deadline)
            value = full_bound(model, loader)
        except Exception:
            before.restore()
            raise
        finally:
            model.zero_grad(set_to_none=True)
            model.eval()
        took = timing.clock() - began
        stage = FitStage("minibatches", f"{total} rows", training.steps, took, value / total)
        values, trace = constrained_values(parts_of(model)), tuple(training.trace)
        return FitSummary(value, trace[0], training.steps, False, message, took, values, (stage,), trace)
