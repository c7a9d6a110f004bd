"""What training did."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ..models import ParameterAverage


@dataclass(frozen=True)
class FitStage:
    """One stage of a training.

    :param name: what was maximized or computed.
    :param rows: how many rows it saw, and in which blocks.
    :param evaluations: how many times value and gradient were evaluated, without comparisons of starts on fewer rows.
    :param seconds: wall-clock time.
    :param value: the value reached.
    :param unit: what the value is.
    """

    name: str
    rows: str
    evaluations: int
    seconds: float
    value: float
    unit: str = "nats per row"

    def __str__(self) -> str:
        work = f" after {self.evaluations} evaluations" if self.evaluations else ""
        return f"{self.name}, {self.rows}: {self.value:.4g} {self.unit}{work} in {self.seconds:.1f} s"


@dataclass(frozen=True)
class FitSummary:
    """The result of :func:`fit`.

    :param log_marginal_likelihood: the value reached, summed over rows and classes, without priors: the evidence of the
        model; for a variational model the lower bound, and for :class:`LeaveOut` its log density.
    :param initial_log_marginal_likelihood: the value at the start; NaN where parameters were learned from few rows.
    :param evaluations: how many times a likelihood and its gradient were evaluated.
    :param converged: whether the gradient is zero to tolerance, except for parameters at a bound.
    :param message: what ended the training, in plain words.
    :param seconds: wall-clock time.
    :param parameters: the constrained values of every trained parameter by name.
    :param stages: what was done in which order.
    :param trace: the bound after every epoch of training from minibatches, as the batches estimate it.
    :param quantity: what was maximized, in words.
    :param average: the average over the parameters that :class:`Average` makes; None for other strategies.
    """

    log_marginal_likelihood: float
    initial_log_marginal_likelihood: float
    evaluations: int
    converged: bool
    message: str
    seconds: float
    parameters: dict[str, list[float]]
    stages: tuple[FitStage, ...] = ()
    trace: tuple[float, ...] = ()
    quantity: str = "log marginal likelihood"
    average: ParameterAverage | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        before = self.initial_log_marginal_likelihood
        start = "" if math.isnan(before) else f"{before:.6g} -> "
        head = (
            f"{self.quantity} {start}{self.log_marginal_likelihood:.6g} "
            f"after {self.evaluations} evaluations in {self.seconds:.1f} s ({self.message})"
        )
        done = [f"  {stage}" for stage in self.stages] if len(self.stages) > 1 else []
        lines = [f"  {name} = {', '.join(f'{v:.4g}' for v in values)}" for name, values in self.parameters.items()]
        return "\n".join([head, *done, *lines])
