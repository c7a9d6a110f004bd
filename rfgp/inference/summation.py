"""Sums over rows, chunk by chunk, whose gradients need no more memory than those of one chunk."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..linalg import GramGradients
from ..linalg.complex_numbers import real_part
from .class_statistics import ClassStatistics
from .rows import Rows
from .statistics import GramStatistics

Part = slice | Tensor
"""Some rows: a slice, or their numbers."""


Pairs = list[tuple[Tensor | None, Tensor | None]]
"""Tensors that are made of a chunk, and the gradient of each."""


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


class _Sum(torch.autograd.Function):
    """Sums over all rows: forwards without a graph, and backwards with that of one chunk after the other."""

    @staticmethod
    def forward(
        ctx: Any, summand: Summand, total: Any, parts: Sequence[Part], sizes: tuple[int, int], *tensors: Tensor | None
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(*tensors)
        ctx.summand, ctx.parts, ctx.sizes = summand, parts, sizes
        by_row, shared = tensors[: sizes[0]], tensors[sizes[0] : sum(sizes)]
        for part in parts:
            summand.add(total, *_taken(by_row, part), *shared)
        return summand.sums(total)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        tensors, wanted, last = ctx.saved_tensors, ctx.needs_input_grad[4:], sum(ctx.sizes)
        found = {index: torch.zeros_like(t) for index, t in enumerate(tensors) if wanted[index]}
        pullback = ctx.summand.pullback(*gradients)
        for part in ctx.parts:
            arguments = [*_taken(tensors[: ctx.sizes[0]], part), *tensors[ctx.sizes[0] : last]]
            leaves = [_leaf(tensor, is_wanted) for tensor, is_wanted in zip(arguments, wanted, strict=False)]
            with torch.enable_grad():
                pairs = pullback(*leaves)
            inputs = [*leaves, *tensors[last:]]
            added = _pulled_back(pairs, [inputs[index] for index in found])
            for (index, total), gradient in zip(found.items(), added, strict=True):
                if gradient is not None and index < ctx.sizes[0]:
                    total[part] = gradient
                elif gradient is not None:
                    total += gradient
        return None, None, None, None, *(found.get(index) for index in range(len(tensors)))


def _taken(tensors: Iterable[Tensor | None], part: Part) -> list[Tensor | None]:
    return [None if tensor is None else tensor[part] for tensor in tensors]


def _leaf(tensor: Tensor | None, is_wanted: bool) -> Tensor | None:
    return None if tensor is None else tensor.detach().requires_grad_(is_wanted)


def _pulled_back(pairs: Pairs, inputs: list[Tensor]) -> Sequence[Tensor | None]:
    """The gradients of inputs, from those of tensors that were made of them."""
    known = [pair for pair in pairs if pair[0] is not None and pair[0].requires_grad]
    if not known:
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
    sizes = len(by_row), len(shared)
    sums: tuple[Tensor, ...] = _Sum.apply(summand, total, parts, sizes, *by_row, *shared, *parameters)
    return sums


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
        held = _ClassStatistics(make, empty, rows.groups, product_dtype)
        numbers = torch.arange(len(x), device=x.device)
        return held.statistics(sum_over_rows(held, empty, parts, (*by_row, numbers), parameters=leaves))
    summand = _Statistics(make, empty.shift, rows.num_groups, product_dtype)
    gram, cross, target_gram, log_noise = sum_over_rows(summand, empty, parts, by_row, parameters=leaves)
    sums = {"gram": gram, "cross": cross, "target_gram": target_gram, "count": empty.count, "log_noise": log_noise}
    return GramStatistics.from_sums(sums, empty.shift)


class _Statistics:
    """Statistics as what is summed. The gradient in features and rows is closed, and needs no Gram product."""

    def __init__(self, make: Make, shift: Tensor, num_groups: int, product_dtype: torch.dtype) -> None:
        self.make, self.shift, self.num_groups, self.product_dtype = make, shift, num_groups, product_dtype

    def _made(self, x: Tensor, targets: Tensor, *others: Any) -> tuple[Tensor, Rows]:
        return self.make(x, Rows(targets, *others)._replace(num_groups=self.num_groups))

    def add(self, total: GramStatistics, *chunk: Any) -> None:
        total.add(*self._made(*chunk), self.product_dtype)

    def sums(self, total: GramStatistics) -> tuple[Tensor, ...]:
        known = total.sums()
        return known["gram"], known["cross"], known["target_gram"], known["log_noise"]

    def pullback(self, *gradients: Tensor) -> Callable[..., Pairs]:
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


class _ClassStatistics:
    """Statistics of many classes as what is summed: the gradients of rows that are held are those of their features.

    :param make: as in :func:`summed`.
    :param total: the statistics to which the rows will be added, which have Gram matrices for all that need them.
    :param groups: the class of every row, (N,).
    :param product_dtype: the dtype of the products inside a chunk.
    """

    def __init__(self, make: Make, total: ClassStatistics, groups: Tensor | None, product_dtype: torch.dtype) -> None:
        if groups is None:
            raise ValueError("expected rows with their classes, got rows without; give every row its group")
        self.make, self.total, self.product_dtype = make, total, product_dtype
        self.place = total.places()
        held = (self.place[groups] < 0).nonzero().squeeze(-1)
        held = held[groups[held].argsort(stable=True)]
        self.position = torch.empty_like(groups)
        self.position[held] = torch.arange(len(held), device=groups.device)

    def add(self, total: ClassStatistics, *chunk: Any) -> None:
        total.add(*self._made(*chunk), self.product_dtype)

    def _made(self, x: Tensor, targets: Tensor, *others: Any) -> tuple[Tensor, Rows]:
        return self.make(x, Rows(targets, *others[:-1])._replace(num_groups=len(self.place)))

    def sums(self, total: ClassStatistics) -> tuple[Tensor, ...]:
        known = total.sums()
        return known["gram"], known["rows"], known["cross"], known["target_gram"]

    def statistics(self, sums: tuple[Tensor, ...]) -> ClassStatistics:
        """Statistics of the sums, with their gradients."""
        differentiable = dict(zip(("gram", "rows", "cross", "target_gram"), sums, strict=True))
        return ClassStatistics.from_sums({**self.total.sums(), **differentiable}, self.total.shift)

    def pullback(self, *gradients: Tensor) -> Callable[..., Pairs]:
        gram, rows_held, cross, target_gram = gradients

        @functools.lru_cache(1)
        def of_group(group: int) -> GramGradients:
            place = int(self.place[group])
            return GramGradients(gram[place], cross[group], target_gram[group], self.product_dtype)

        def pull(*chunk: Any) -> Pairs:
            features, rows = self._made(*chunk)
            columns, groups, numbers = rows.lifted(self.total.shift), chunk[4], chunk[5]
            if int(self.place[groups[0]]) >= 0:
                wanted = [features.requires_grad, columns.requires_grad, False]
                found = of_group(int(groups[0])).of_rows(features, columns, None, wanted)
                return [(features, found[0]), (columns, found[1])]
            by_group = cross[groups]
            back = torch.einsum("nk,ndk->nd", columns.to(by_group.dtype), by_group.conj())
            back = back if features.is_complex() else real_part(back)
            pairs: Pairs = [(features, back.to(features.dtype) + rows_held[self.position[numbers]].to(features.dtype))]
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
