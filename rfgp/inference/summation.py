"""Sums over rows, chunk by chunk, whose gradients need no more memory than those of one chunk."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ..linalg import GramGradients
from ..linalg.complex_numbers import real_part
from .class_statistics import ClassStatistics
from .rows import Rows
from .statistics import GramStatistics
from .sum_gradients import Backward, leaf, with_gradients

Part = slice | Tensor
"""Some rows: a slice, or their numbers."""


Pairs = list[tuple[Tensor | None, Tensor | None]]
"""Tensors that are made of a chunk, and the gradient of each."""


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
        """Takes a chunk, and returns tensors that are made of it, with their graph, and the gradient of each.

        :param gradients: those of the sums.
        """


class Piece(NamedTuple):
    """Some rows that are in memory, and how gradients of sums over them are pulled back, chunk by chunk.

    :param pull: takes a chunk, the rows of every tensor by row and the shared ones after them, and returns tensors that
        are made of it, with their graph, and the gradient of each.
    :param parts: the chunks, which have no row twice.
    :param by_row: tensors with an entry for every row, or None; gradients run on through what they are made of.
    :param shared: tensors that every chunk takes; gradients run on through them too.
    """

    pull: Callable[..., Pairs]
    parts: Sequence[Part]
    by_row: Sequence[Tensor | None]
    shared: Sequence[Tensor | None] = ()

    def gradients(self, inputs: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradients of some tensors, at the memory of one chunk."""
        arguments, count = [*self.by_row, *self.shared], len(self.by_row)
        own = {k: torch.zeros_like(t) for k, t in enumerate(arguments) if t is not None and t.requires_grad}
        total: list[Tensor | None] = [None] * len(inputs)
        for part in self.parts:
            leaves = [leaf(t, k in own) for k, t in enumerate([*_taken(self.by_row, part), *self.shared])]
            with torch.enable_grad():
                pairs = self.pull(*leaves)
            added = _pulled_back(pairs, [*(leaves[k] for k in own), *inputs])
            for k, gradient in zip(own, added, strict=False):
                if gradient is not None and k < count:
                    own[k][part] = gradient
                elif gradient is not None:
                    own[k] += gradient
            total = [*map(_sum, total, added[len(own) :])]
        return [*map(_sum, total, _pulled_back([(arguments[k], gradient) for k, gradient in own.items()], inputs))]


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
    known = [pair for pair in pairs if pair[0] is not None and pair[0].requires_grad]
    if not known or not inputs:
        return [None] * len(inputs)
    outputs, gradients = zip(*known, strict=True)
    return torch.autograd.grad(outputs, inputs, gradients, allow_unused=True)


def sum_over_rows(
    summand: Summand,
    total: Any,
    parts: Sequence[Part],
    by_row: Sequence[Tensor | None],
    shared: Sequence[Tensor] = (),
    parameters: Iterable[Tensor] = (),
) -> tuple[Tensor, ...]:
    """The sums over rows, differentiable once in all tensors that are given here, at the memory of one chunk.

    :param summand: what is summed; a chunk is the rows of every tensor by row, and the shared ones after them.
    :param total: sums without rows, to which the chunks are added in place.
    :param parts: the chunks, which have no row twice.
    :param by_row: tensors with an entry for every row, or None.
    :param shared: tensors that every chunk takes.
    :param parameters: the leaves that the summand depends on beside its arguments, such as parameters of a kernel.
    """
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
    empty: GramStatistics,
    product_dtype: torch.dtype,
) -> GramStatistics:
    """Statistics of what is made of rows, chunk by chunk, with gradients where there is anything that wants them.

    The memory is that of one chunk, forwards and backwards. Backwards the features of a chunk are made again, with
    their graph; their Gram product is not.

    :param make: takes inputs (n, d) and rows of a chunk and returns the features (n, D) and the rows that are summed.
        Both may depend on its arguments and on the parameters, and are the same at every call.
    :param x: inputs, (N, d).
    :param rows: what the rows add beside their features.
    :param parts: the chunks, which have no row twice.
    :param parameters: the leaves that ``make`` depends on beside its arguments.
    :param empty: statistics to which the rows are added, in place; without rows where there are gradients.
    :param product_dtype: the dtype of the products inside a chunk, forwards and backwards.
    """
    by_row, leaves = (x, *rows[:4]), list(parameters)
    if not torch.is_grad_enabled() or not any(t is not None and t.requires_grad for t in (*by_row, *leaves)):
        for part in parts:
            empty.add(*make(x[part], rows.take(part)), product_dtype)
        return empty
    if isinstance(empty, ClassStatistics):
        of_classes = ClassStatisticsOfRows(make, empty, product_dtype)
        positions = HeldPositions.of_rows(empty, rows.group_numbers).next(rows.group_numbers)
        return empty.with_differentiable(
            sum_over_rows(of_classes, empty, parts, (*by_row, positions), parameters=leaves)
        )
    summand = StatisticsOfRows(make, empty.shift, rows.num_groups, product_dtype)
    return empty.with_differentiable(sum_over_rows(summand, empty, parts, by_row, parameters=leaves))


class StatisticsOfRows:
    """Statistics as what is summed. The gradient in features and rows is closed, and needs no Gram product."""

    def __init__(self, make: Make, shift: Tensor, num_groups: int, product_dtype: torch.dtype) -> None:
        self.make, self.shift, self.num_groups, self.product_dtype = make, shift, num_groups, product_dtype

    def _made(self, x: Tensor, targets: Tensor, *others: Any) -> tuple[Tensor, Rows]:
        return self.make(x, Rows(targets, *others)._replace(num_groups=self.num_groups))

    def add(self, total: GramStatistics, *chunk: Any) -> None:
        """Add a chunk, without gradients."""
        total.add(*self._made(*chunk), self.product_dtype)

    def sums(self, total: GramStatistics) -> tuple[Tensor, ...]:
        """The sums that have gradients."""
        return total.differentiable()

    def pullback(self, *gradients: Tensor) -> Callable[..., Pairs]:
        """Takes a chunk, and returns its features, columns, weights and log noises with the gradient of each."""
        gram, cross, target_gram, log_noise = gradients

        @functools.lru_cache(1)
        def of_group(group: int) -> GramGradients:
            return GramGradients(gram[group], cross[group], target_gram[group], self.product_dtype)

        def pull(*chunk: Any) -> Pairs:
            features, rows = self._made(*chunk)
            wanted = [tensor is not None and tensor.requires_grad for tensor in (features, *rows[:2])]
            pairs: Pairs = []
            from_all = None
            for group, members, own in rows.by_group():
                columns = own.lifted(self.shift)
                found = of_group(group).of_rows(features[members], columns, own.weights, wanted)
                pairs += [(columns, found[1]), (own.weights, found[2])]
                if own.log_noise is not None:
                    pairs.append((own.log_noise, log_noise[group].to(own.log_noise).expand(len(columns))))
                from_all = _added_at(members, found[0], from_all, features)
            return [(features, from_all), *pairs]

        return pull


class HeldPositions:
    """Where the rows of every group are among those that statistics of classes hold, as they come in.

    :param counts: how many rows of every group are held in all, (G,).
    """

    def __init__(self, counts: Tensor) -> None:
        self._next = counts.cumsum(0) - counts

    @classmethod
    def of_rows(cls, total: ClassStatistics, groups: Tensor) -> HeldPositions:
        """Those of rows that will be added to statistics without rows, which know what will be held.

        :param total: the statistics.
        :param groups: the group of every row, (N,).
        """
        return cls(torch.bincount(groups, minlength=len(total.count)) * ~total.is_dense())

    def next(self, groups: Tensor) -> Tensor:
        """The positions of the next rows, (n,); those of groups that have a Gram matrix mean nothing.

        :param groups: their groups, (n,).
        """
        order, counts = groups.argsort(stable=True), torch.bincount(groups, minlength=len(self._next))
        start = self._next - (counts.cumsum(0) - counts)
        positions = torch.empty_like(groups)
        positions[order] = start[groups[order]] + torch.arange(len(groups), device=groups.device)
        self._next = self._next + counts
        return positions


class ClassStatisticsOfRows:
    """Statistics of many classes as what is summed: the gradients of rows that are held are those of their features.

    A chunk ends with the positions of its rows among those that are held.

    :param make: as in :func:`summed`.
    :param total: the statistics, which have Gram matrices for all groups that need them.
    :param product_dtype: the dtype of the products inside a chunk.
    """

    def __init__(self, make: Make, total: ClassStatistics, product_dtype: torch.dtype) -> None:
        self.make, self.shift, self.product_dtype, self.place = make, total.shift, product_dtype, total.places()
        self.total = total

    def add(self, total: ClassStatistics, *chunk: Any) -> None:
        """Add a chunk, without gradients."""
        total.add(*self._made(*chunk), self.product_dtype)

    def _made(self, x: Tensor, targets: Tensor, *others: Any) -> tuple[Tensor, Rows]:
        return self.make(x, Rows(targets, *others[:-1])._replace(num_groups=len(self.place)))

    def _check_order(self, features: Tensor, positions: Tensor) -> None:
        """Raise a ValueError where rows are not at the places where they were when they were summed."""
        held = self.total.rows.detach()[positions]
        if float((held - features).abs().max()) > 1e-3 * float(held.abs().max()):
            raise ValueError(
                "expected the batches of the fit once more in the same order for the gradient of many classes, got "
                "others; use a loader that does not shuffle, and one process"
            )

    def sums(self, total: ClassStatistics) -> tuple[Tensor, ...]:
        """The sums that have gradients."""
        return total.differentiable()

    def pullback(self, *gradients: Tensor) -> Callable[..., Pairs]:
        """Takes a chunk, and returns its features and columns with the gradient of each."""
        gram, rows_held, cross, target_gram = gradients

        @functools.lru_cache(1)
        def of_group(group: int) -> GramGradients:
            place = int(self.place[group])
            return GramGradients(gram[place], cross[group], target_gram[group], self.product_dtype)

        def pull(*chunk: Any) -> Pairs:
            features, rows = self._made(*chunk)
            columns, groups, positions = rows.lifted(self.shift), chunk[4], chunk[5]
            if int(self.place[groups[0]]) >= 0:
                wanted = [features.requires_grad, columns.requires_grad, False]
                found = of_group(int(groups[0])).of_rows(features, columns, None, wanted)
                return [(features, found[0]), (columns, found[1])]
            self._check_order(features.detach(), positions)
            by_group = cross[groups]
            back = torch.einsum("nk,ndk->nd", columns.to(by_group.dtype), by_group.conj())
            back = back if features.is_complex() else real_part(back)
            pairs: Pairs = [(features, back.to(features.dtype) + rows_held[positions].to(features.dtype))]
            if columns.requires_grad:
                ahead = torch.einsum("nd,ndk->nk", features.to(by_group.dtype), by_group)
                squares = (target_gram + target_gram.mH)[groups]
                of_columns = torch.einsum("nk,nkl->nl", columns, squares)
                pairs.append((columns, (ahead if columns.is_complex() else real_part(ahead)) + of_columns))
            return pairs

        return pull


def _added_at(members: Part, added: Tensor | None, known: Tensor | None, features: Tensor) -> Tensor | None:
    """The gradients in features, with those of some of the rows added to what is known."""
    if added is None or (known is None and len(added) == len(features)):
        return added
    total = torch.zeros_like(features) if known is None else known
    total[members] += added
    return total
