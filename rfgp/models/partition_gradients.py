"""Gradients of sums over partitions: workers read these once more, and send the gradients in the parameters."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..inference import GramStatistics, TreeSum
from ..inference.summation import with_gradients
from .row_sums import Patterns, RowSums
from .second_pass import SecondPass
from .sent import pickled, rows_of
from .tasks import one_thread, results

Gradients = list[Tensor | None]


class Again(NamedTuple):
    """What a second pass over partitions needs.

    :param model: the pickled model without data that the first pass had.
    :param partitions: the partitions, each with a name and its batches, which can be gone through again.
    :param num_rows: how many rows each of them had.
    :param executor: what calls the tasks.
    """

    model: bytes
    partitions: Iterable[Any]
    num_rows: Sequence[int]
    executor: Executor

    def gradients(self, patterns: Patterns, shifts: list[Tensor], of_sums: list[Tensor]) -> Gradients:
        """The gradients in the parameters of the model.

        :param patterns: those of all rows.
        :param shifts: the shift of the sums of every draw.
        :param of_sums: the gradients of the sums of every draw, four for each.
        """
        sent = pickled((patterns, shifts, of_sums), "the gradients")
        total, count = TreeSum[Gradients](_added), 0
        pairs = zip(self.partitions, self.num_rows, strict=False)
        tasks = ((p.name, (self.model, pickled((p.batches, rows), p.name), sent)) for p, rows in pairs)
        for found in results(self.executor, _pickled_gradients, tasks):
            total.add(pickle.loads(found))
            count += 1
        if count != len(self.num_rows):
            raise ValueError(
                f"expected the {len(self.num_rows)} partitions of the fit once more for its gradient, got {count}; "
                "pass a list of partitions, or fit under torch.no_grad()"
            )
        return total.value()


def tracked(model: Any, sums: RowSums, again: Again) -> RowSums:
    """The same sums, with gradients in the parameters, for which the workers read the partitions once more.

    :param model: the model, whose maps are made.
    :param sums: sums without gradients.
    :param again: the second pass.
    """
    leaves = _leaves(model)
    flat = [value for draw in sums.draws for value in draw.differentiable()]
    shifts = [draw.shift for draw in sums.draws]

    def back(of_sums: list[Tensor]) -> Gradients:
        return again.gradients(sums.patterns, shifts, of_sums)

    found = _Elsewhere.apply(back, len(flat), *flat, *leaves)
    draws = [
        GramStatistics.of_differentiable(found[4 * number : 4 * number + 4], draw.shift, draw.count)
        for number, draw in enumerate(sums.draws)
    ]
    return sums._replace(draws=tuple(draws))


class _Elsewhere(torch.autograd.Function):
    """Sums that are known, and the gradients in parameters of what they were made of in other processes."""

    @staticmethod
    def forward(ctx: Any, back: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.back, ctx.count = back, count
        return tuple(tensor.view_as(tensor) for tensor in tensors[:count])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *[None] * ctx.count, *ctx.back(list(gradients))


def _leaves(model: Any) -> list[Tensor]:
    """The parameters of a model, in the same order in every process."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _added(first: Gradients, second: Gradients) -> Gradients:
    return [b if a is None else a if b is None else a + b for a, b in zip(first, second, strict=True)]


def _pickled_gradients(model: bytes, part: bytes, of_sums: bytes) -> bytes:
    """The gradients in the parameters that the rows of a partition add, by one thread."""
    (parts, num_rows), (patterns, shifts, gradients) = pickle.loads(part), pickle.loads(of_sums)
    with one_thread():
        own = pickle.loads(model)
        own._noise.patterns = patterns
        draws = [
            GramStatistics.of_differentiable(gradients[4 * number : 4 * number + 4], shift)
            for number, shift in enumerate(shifts)
        ]
        with torch.enable_grad():
            second = SecondPass(own, rows_of(parts), num_rows, RowSums(tuple(draws)))
            sums = with_gradients(gradients, second.pieces, (), second.parameters)
            found = torch.autograd.grad(sums, _leaves(own), gradients, allow_unused=True)
    return pickle.dumps(list(found))
