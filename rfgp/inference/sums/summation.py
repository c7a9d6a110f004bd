"""Sums over rows, chunk by chunk, whose gradients need no more memory than those of one chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from .row_gradients import Pairs
from .rows import Part, Rows, has_gradients
from .sufficient_statistics import SufficientStatistics
from .sum_gradients import Backward, leaf, with_gradients


class SumTensors(NamedTuple):
    """The sums of :class:`GramStatistics` that have gradients."""

    gram: Tensor
    cross: Tensor
    target_gram: Tensor
    log_noise: Tensor


class Summand(Protocol):
    """What is summed over chunks of rows, and the gradient of what a chunk adds."""

    def add(self, total: Any, *chunk: Any) -> None:
        """Add a chunk of rows to sums in place, without gradients."""

    def sums(self, total: Any) -> tuple[Tensor, ...]:
        """The sums as tensors."""

    def pullback(self, *gradients: Tensor) -> Callable[..., Pairs]:
        """Takes a chunk, and returns tensors that are made of it, with their graph, and the gradient of each."""


class Piece(NamedTuple):
    """Some rows in memory, and how gradients of sums over them are pulled back, chunk by chunk.

    :param pull: takes a chunk of the tensors by row and the shared ones, and returns tensors with their gradients.
    """

    pull: Callable[..., Pairs]
    parts: Sequence[Part]
    by_row: Sequence[Tensor | None]
    shared: Sequence[Tensor | None] = ()

    def gradients(self, inputs: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradients of some tensors, at the memory of one chunk."""
        arguments, count = [*self.by_row, *self.shared], len(self.by_row)
        by_argument = {k: torch.zeros_like(t) for k, t in enumerate(arguments) if t is not None and t.requires_grad}
        total: list[Tensor | None] = [None] * len(inputs)
        for part in self.parts:
            leaves = [leaf(t, k in by_argument) for k, t in enumerate([*_taken(self.by_row, part), *self.shared])]
            with torch.enable_grad():
                pairs = self.pull(*leaves)
            added = _pulled_back(pairs, [*(leaves[k] for k in by_argument), *inputs])
            for k, gradient in zip(by_argument, added, strict=False):
                if gradient is not None and k < count:
                    by_argument[k][part] = gradient
                elif gradient is not None:
                    by_argument[k] += gradient
            total = [*map(_sum, total, added[len(by_argument) :])]
        return [
            *map(_sum, total, _pulled_back([(arguments[k], gradient) for k, gradient in by_argument.items()], inputs))
        ]


Pieces = Callable[[Sequence[Tensor], Sequence[Tensor | None]], Iterable[Piece]]
"""Takes the gradients of sums and the tensors that these were given by row or shared, without the graph behind them,
and goes through all rows once more."""


def backward_of(pieces: Pieces) -> Backward:
    """What finds the gradients of sums by going through all rows once more, with the graph of a chunk at a time."""

    def backward(
        of_sums: Sequence[Tensor], arguments: Sequence[Tensor | None], inputs: Sequence[Tensor]
    ) -> Sequence[Tensor | None]:
        total: list[Tensor | None] = [None] * len(inputs)
        for piece in pieces(of_sums, arguments):
            total = [*map(_sum, total, piece.gradients(inputs))]
        return total

    return backward


def _taken(tensors: Iterable[Tensor | None], part: Part) -> list[Tensor | None]:
    return [None if tensor is None else tensor[part] for tensor in tensors]


def _sum(total: Tensor | None, added: Tensor | None) -> Tensor | None:
    return added if total is None else total if added is None else total + added


def _pulled_back(pairs: Pairs, inputs: Sequence[Any]) -> Sequence[Tensor | None]:
    """The gradients of inputs, from those of tensors that were made of them."""
    tracked = [pair for pair in pairs if pair[0] is not None and pair[0].requires_grad]
    if not tracked or not inputs:
        return [None] * len(inputs)
    outputs, gradients = zip(*tracked, strict=True)
    return torch.autograd.grad(outputs, inputs, gradients, allow_unused=True)


def sum_over_rows(
    summand: Summand,
    total: Any,
    parts: Sequence[Part],
    by_row: Sequence[Tensor | None],
    shared: Sequence[Tensor] = (),
    parameters: Iterable[Tensor] = (),
) -> tuple[Tensor, ...]:
    """The sums over rows, differentiable once in all given tensors, at the memory of one chunk."""
    with torch.no_grad():
        for part in parts:
            summand.add(total, *_taken(by_row, part), *shared)

    def pieces(gradients: Sequence[Tensor], arguments: Sequence[Tensor | None]) -> Iterable[Piece]:
        return [Piece(summand.pullback(*gradients), parts, arguments[: len(by_row)], arguments[len(by_row) :])]

    return with_gradients(summand.sums(total), backward_of(pieces), (*by_row, *shared), parameters)


Make = Callable[[Tensor, Rows], tuple[Tensor, Rows]]
"""Takes inputs and rows of a chunk, and returns the features and rows that are summed."""


def summed(
    make: Make,
    x: Tensor,
    rows: Rows,
    parts: Sequence[Part],
    parameters: Iterable[Tensor],
    empty: SufficientStatistics,
    product_dtype: torch.dtype,
) -> SufficientStatistics:
    """Statistics of what is made of rows x (N, d), with gradients where wanted, at the memory of one chunk.

    :param make: takes inputs (n, d) and rows of a chunk and returns features (n, D) and rows, the same at every call.
    :param empty: statistics to which the rows are added, in place; without rows where there are gradients.
    """
    by_row: tuple[Tensor | None, ...] = (x, *rows[:4])
    leaves = list(parameters)
    if not has_gradients((*by_row, *leaves)):
        for part in parts:
            empty.add(*make(x[part], rows.take(part)), product_dtype)
        return empty
    positions = None if rows.groups is None else empty.row_positions(rows.groups)
    if positions is not None:
        by_row = (*by_row, positions.next(rows.groups))
    summand = StatisticsOfRows(make, product_dtype)
    return empty.with_differentiable(sum_over_rows(summand, empty, parts, by_row, parameters=leaves))


class StatisticsOfRows:
    """Statistics as a sum over chunks of inputs, parts of rows, and places of held rows, with closed gradients."""

    def __init__(self, make: Make, product_dtype: torch.dtype, total: SufficientStatistics | None = None) -> None:
        self.make, self.product_dtype = make, product_dtype
        self.row_gradients = None if total is None else total.row_gradients(product_dtype)

    def _made(self, num_groups: int, x: Tensor, *parts: Any) -> tuple[Tensor, Rows]:
        return self.make(x, Rows(*parts[:4])._replace(num_groups=num_groups))

    def add(self, total: SufficientStatistics, *chunk: Any) -> None:
        """Add a chunk, without gradients."""
        total.add(*self._made(len(total.count), *chunk), self.product_dtype)

    def sums(self, total: SufficientStatistics) -> tuple[Tensor, ...]:
        """The sums that have gradients."""
        self.row_gradients = total.row_gradients(self.product_dtype)
        return total.differentiable()

    def pullback(self, *gradients: Tensor) -> Callable[..., Pairs]:
        """Takes a chunk, and returns tensors that it is made of with the gradient of each."""
        if self.row_gradients is None:
            raise ValueError("expected sums over all rows before their gradients, got none; add the rows first")
        of_rows, num_groups = self.row_gradients(gradients), len(gradients[-1])

        def pull(*chunk: Any) -> Pairs:
            positions = chunk[5] if len(chunk) > 5 else None
            return of_rows(*self._made(num_groups, *chunk), positions)

        return pull
