"""Sums over the rows of all ranks of a job of torch.distributed."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..distributed import Shard
from ..distributed.ranks import Ranks
from ..inference import GramStatistics
from .impropriety import SomeRows
from .input_bounds import joined_bounds
from .row_sums import Patterns, RowSums
from .second_pass import Alone


class _Part(NamedTuple):
    """What a rank tells the others of its sums: sizes and kinds, and not the sums."""

    patterns: Patterns
    some: SomeRows | None
    input_bounds: Tensor | None
    sizes: tuple[tuple[int, int, int], ...]
    kinds: tuple[bool, bool]
    kind: type[GramStatistics]

    @classmethod
    def of(cls, sums: RowSums) -> _Part:
        first = sums.draws[0]
        sizes = tuple((draw.num_features, len(draw.shift), len(draw.count)) for draw in sums.draws)
        kinds = first.has_complex_features, first.shift.is_complex()
        return cls(sums.patterns, sums.some, sums.input_bounds, sizes, kinds, type(first))


class AllRanks(Alone):
    """Sums and gradients over the rows of all ranks.

    :param shard: the rows of this rank.
    """

    def __init__(self, shard: Shard) -> None:
        self.shard, self.ranks = shard, shard.ranks

    def sums(self, model: Any, make: Callable[[], RowSums]) -> RowSums:
        def own() -> tuple[RowSums | None, int]:
            first = next(iter(self.shard), None)
            return (None, 0) if first is None else (make(), first[0].shape[-1])

        found, width = self.ranks.attempt(own, "a pass over the rows")
        widths = [known for known in self.ranks.every(width) if known]
        if found is None and widths:
            self._make_maps(model, widths[0])
        self._check(model)
        return sum_over_ranks(found, self.ranks, model)

    def gradients(self, make: Callable[[], list[Tensor]]) -> list[Tensor]:
        found = [gradient.contiguous() for gradient in self.ranks.attempt(make, "a pass over the rows")]
        self.ranks.sum_(found)
        return found

    def _make_maps(self, model: Any, width: int) -> None:
        """Make the maps of a rank that has no rows to make them from."""
        reference = next(model.covar_module.parameters())
        with torch.no_grad():
            model.covar_module.scalar_features(torch.zeros(1, width, dtype=reference.dtype, device=reference.device))

    def _check(self, model: Any) -> None:
        """Raise a ValueError on all ranks where they have different models."""
        state = {name: value.detach() for name, value in model.named_parameters()} | model._feature_state()
        digests = {name: hashlib.sha256(_bytes(value)).hexdigest() for name, value in state.items()}
        every = self.ranks.every(digests)
        changed = {
            name for other in every for name in digests.keys() | other.keys() if other.get(name) != every[0].get(name)
        }
        if changed:
            raise ValueError(
                f"expected the same model on all ranks, got another {', '.join(changed)}; call "
                "rfgp.distributed.broadcast(model) on all ranks first"
            )


def processes_of(source: Any) -> Alone:
    """What makes the sums of all processes of those of one, for the rows of a source."""
    rows = getattr(source, "loader", source)
    return AllRanks(rows) if isinstance(rows, Shard) else Alone()


def _bytes(value: Tensor) -> bytes:
    known = torch.view_as_real(value) if value.is_complex() else value
    return known.cpu().contiguous().numpy().tobytes()


def sum_over_ranks(own: RowSums | None, ranks: Ranks, model: Any) -> RowSums:
    """The sums over the rows of all ranks, with the same bits on all of them.

    :param own: the sums over the rows of this rank, None where it has no rows.
    :param ranks: the ranks.
    :param model: the model, whose noise knows how groups are merged.
    :raises ValueError: where no rank has rows, or ranks have sums of different models.
    """
    parts = [part for part in ranks.every(None if own is None else _Part.of(own)) if part is not None]
    if not parts:
        raise ValueError(f"expected rows on at least one of {ranks.count} ranks, got none; check the shards")
    first = parts[0]
    for part in parts:
        if [size[:2] for size in part.sizes] != [size[:2] for size in first.sizes] or part.kinds != first.kinds:
            raise ValueError(
                f"expected the same model on all ranks, got sums of sizes {part.sizes} and {first.sizes}; make it with "
                "the same arguments everywhere"
            )
    noise, device = model._noise, next(model.covar_module.parameters()).device
    patterns = tuple(dict.fromkeys(itertools.chain.from_iterable(part.patterns for part in parts)))
    groups = len(patterns) or max(size[2] for part in parts for size in part.sizes)
    draws = []
    for index, (width, columns, _) in enumerate(first.sizes):
        total = first.kind(width, columns, groups, *first.kinds, device=device)
        if own is not None:
            total = noise.merged(own.grouped(patterns)[index], total)
        draws.append(total.all_reduce(ranks))
    inputs = functools.reduce(joined_bounds, (part.input_bounds for part in parts))
    return RowSums(tuple(draws), patterns, _joined([part.some for part in parts]), input_bounds=inputs)


def _joined(some: list[Any]) -> SomeRows | None:
    known: SomeRows | None = None
    for rows in some:
        known = rows if known is None or rows is None else known.and_some_of(*rows)
    return known
