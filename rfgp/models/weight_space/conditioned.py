"""What a weight-space model is conditioned on, and whether that is still valid."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

import torch
from torch import Tensor

from ...approximation.width_warning import warn_of_width
from ...data.batches import Batch
from ...inference import OutputFactor
from ..record import WEIGHTS, Record
from .row_sums import RowSums

if TYPE_CHECKING:
    from .model import WeightSpaceGP


class Conditioned(NamedTuple):
    """What a model is conditioned on, and the parameters and weights that the sums were computed with."""

    sums: RowSums
    record: Record

    def to(self, device: torch.device) -> Self:
        """The same on a device."""
        return self._replace(sums=self.sums.to(device), record=self.record.to(device))

    def without_graph(self) -> Self:
        """The same without rows that belong to the graph of gradients."""
        return self._replace(sums=self.sums.without_graph())


def take(model: WeightSpaceGP, sums: RowSums, data: list[Batch], is_same: bool = False) -> None:
    """See :meth:`WeightSpaceGP.take`."""
    noise = model.noise
    noise.patterns = sums.patterns
    model.further_draws.set(model, sums)
    statistics = sums.draws[0]
    width = statistics.num_features
    if model.covar_module.has_output_factor or noise.is_of_parts:
        factor = model.features.output_factor()
        width = factor.num_columns if isinstance(factor, OutputFactor) else width
    values = noise.num_values(statistics)
    if width > values:
        warn_of_width(model.covar_module, f"{width} features exceed the {int(values)} training rows", stacklevel=4)
    before = model.conditioned
    record = before.record if is_same and before is not None else Record(summed_state(model))
    model.conditioned = Conditioned(sums.of_first_draw(), record)
    model.predictor.clear()
    model.training_data = data if model.keep_data else []


def conditioned_of(model: WeightSpaceGP) -> Conditioned:
    """What a model is conditioned on, stale or not."""
    if model.conditioned is None:
        raise ValueError("expected a fitted model, got one without data; call condition(x, y) first")
    conditioned: Conditioned = model.conditioned
    return conditioned


def checked(model: WeightSpaceGP) -> Conditioned:
    """What a model is conditioned on, or a ValueError where parameters or weights have changed since."""
    conditioned = conditioned_of(model)
    conditioned.record.check(summed_state(model), "the statistics were computed")
    return conditioned


def valid_sums(model: WeightSpaceGP) -> RowSums:
    """The sums of a model for all draws of its weights."""
    sums = checked(model).sums
    further = model.further_draws.of(model)
    return sums.with_further([draw.statistics for draw in further]) if further else sums


def sums_with_rows(model: WeightSpaceGP) -> RowSums:
    """The sums of a model, with the rows of its blocks if it has blocks."""
    sums = valid_sums(model)
    if model.block_size is not None and sums.local is None:
        raise ValueError(
            "expected a model with the rows of its blocks, got one that was saved without them; call condition(x, y) "
            "with all rows, or save it with_rows=True"
        )
    return sums


def summed_state(model: WeightSpaceGP) -> dict[str, Tensor]:
    """What the statistics of a model depend on, by name."""
    kernel, has_all, state = model.covar_module, model.contains_noise, {}
    summed = None if has_all else {id(parameter) for parameter in kernel.summed_parameters()}
    for name, parameter in kernel.named_parameters():
        if summed is None or id(parameter) in summed:
            state[name] = parameter.detach()
    if has_all:
        for name, parameter in model.likelihood.named_parameters():
            state[f"likelihood.{name}"] = parameter.detach()
    for name, value in model.noise.parameters().items():
        state[name] = value.detach()
    for name, buffer in kernel.named_buffers():
        if name.endswith(("center", "landmarks", "orders", "spacing", "bounds")):
            state[name] = buffer
    state[WEIGHTS] = model.weights_code.of(kernel)
    return state


def summed_parameters(model: WeightSpaceGP) -> list[Tensor]:
    """The parameters that the statistics of a model depend on."""
    if not model.contains_noise:
        return [*model.covar_module.summed_parameters(), *model.noise.parameters().values()]
    return [*model.covar_module.parameters(), *model.likelihood.parameters()]
