"""Sums over the rows of all ranks of a job of torch.distributed."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import torch

from ..distributed import Ranks
from ..inference import GramStatistics, NoiseModel
from .impropriety import SomeRows
from .row_sums import Patterns, RowSums


class _Part(NamedTuple):
    """What a rank tells the others of its sums: sizes and kinds, and not the sums."""

    patterns: Patterns
    some: SomeRows | None
    sizes: tuple[tuple[int, int, int], ...]
    kinds: tuple[bool, bool]
    kind: type[GramStatistics]

    @classmethod
    def of(cls, sums: RowSums) -> _Part:
        first = sums.draws[0]
        sizes = tuple((draw.num_features, len(draw.shift), len(draw.count)) for draw in sums.draws)
        kinds = first.has_complex_features, first.shift.is_complex()
        return cls(sums.patterns, sums.some, sizes, kinds, type(first))


def sum_over_ranks(own: RowSums | None, ranks: Ranks, noise: NoiseModel, device: torch.device) -> RowSums:
    """The sums over the rows of all ranks, with the same bits on all of them.

    :param own: the sums over the rows of this rank, None where it has no rows.
    :param ranks: the ranks.
    :param noise: the noise model, which knows how groups are merged.
    :param device: where the sums of a rank without rows are made.
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
    patterns = tuple(dict.fromkeys(itertools.chain.from_iterable(part.patterns for part in parts)))
    groups = len(patterns) or max(size[2] for part in parts for size in part.sizes)
    draws = []
    for index, (width, columns, _) in enumerate(first.sizes):
        total = first.kind(width, columns, groups, *first.kinds, device=device)
        if own is not None:
            total = noise.merged(own.grouped(patterns)[index], total)
        draws.append(total.all_reduce(ranks))
    return RowSums(tuple(draws), patterns, _joined([part.some for part in parts]))


def _joined(some: list[Any]) -> SomeRows | None:
    known: SomeRows | None = None
    for rows in some:
        known = rows if known is None or rows is None else known.and_some_of(*rows)
    return known
