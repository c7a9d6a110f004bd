"""What a pass over rows adds up for a weight-space model."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ..inference import GramStatistics, NoiseModel, SufficientStatistics, TrainingRows
from .impropriety import SomeRows
from .input_bounds import joined_bounds

Patterns = tuple[tuple[bool, ...], ...]


class RowSums(NamedTuple):
    """The sums over some rows for every draw of the random weights, which can be merged with those over others.

    :param draws: the statistics for every draw.
    :param patterns: which outputs are observed in every group of rows, where groups differ in that.
    :param some: rows of complex targets on which residuals will be looked at.
    :param rows: the rows, where gradients are to run back to them; those of merged sums are not known.
    :param num_rows: the number of rows, also of those without a target.
    :param input_bounds: powers of two between which the inputs lie, (2, d); None where they are not known.
    """

    draws: tuple[SufficientStatistics, ...]
    patterns: Patterns = ()
    some: SomeRows | None = None
    rows: TrainingRows | None = None
    num_rows: int = 0
    input_bounds: Tensor | None = None

    def merged(self, other: RowSums, noise: NoiseModel) -> RowSums:
        """The sums over the rows of both.

        :param other: the sums over other rows, for the same draws.
        :param noise: the noise model, which knows how groups are merged.
        """
        patterns = (*self.patterns, *(pattern for pattern in other.patterns if pattern not in self.patterns))
        pairs = zip(self.grouped(patterns), other.grouped(patterns), strict=True)
        some = other.some if self.some is None or other.some is None else self.some.and_some_of(*other.some)
        draws = tuple(noise.merged(known, added) for known, added in pairs)
        inputs = joined_bounds(self.input_bounds, other.input_bounds)
        return RowSums(draws, patterns, some, num_rows=self.num_rows + other.num_rows, input_bounds=inputs)

    def without(self, other: RowSums, noise: NoiseModel, is_centered: bool = True) -> RowSums:
        """The sums over these rows without those of others.

        :param other: the sums over some of the rows, for the same draws.
        :param noise: the noise model, which is given the patterns of both.
        :param is_centered: whether the sums are centered anew, at the targets that are left.
        :raises ValueError: where the others are no part of these rows, as far as sums show.
        """
        patterns = (*self.patterns, *(pattern for pattern in other.patterns if pattern not in self.patterns))
        pairs = zip(self.grouped(patterns), other.grouped(patterns), strict=True)
        noise.patterns = patterns
        draws = tuple(noise.without(known, removed, is_centered) for known, removed in pairs)
        left = RowSums(draws, patterns, self.some, input_bounds=self.input_bounds)
        counts = zip(patterns, left.draws[0].count.tolist(), strict=False)
        kept = tuple(pattern for pattern, count in counts if count)
        return left._replace(draws=tuple(left.grouped(kept)), patterns=kept) if kept else left

    def scaled(self, factor: float) -> RowSums:
        """The sums over the same rows with their weights times a factor."""
        return self._replace(draws=tuple(sums.scaled(factor) for sums in self.draws), rows=None)

    def is_part_of(self, whole: RowSums, noise: NoiseModel) -> bool:
        """Whether these can be what is left of others: see :meth:`rfgp.inference.GramStatistics.is_part_of`.

        :param whole: the sums that these are left of.
        :param noise: the noise model, which is given the patterns of the others.
        """
        noise.patterns = whole.patterns
        groups = self.grouped(whole.patterns) if whole.patterns else self.draws
        pairs = (noise.aligned(*pair) for pair in zip(groups, whole.draws, strict=True))
        return all(
            _observed(left, noise).is_part_of(_observed(known.shifted(left.shift), noise)) for left, known in pairs
        )

    def difference(self, other: RowSums, noise: NoiseModel) -> float:
        """The largest difference of sums, relative to the largest of their kind, over all draws.

        :param other: the sums over other rows, for the same draws.
        :param noise: the noise model, which is given the patterns of both.
        """
        patterns = (*other.patterns, *(pattern for pattern in self.patterns if pattern not in other.patterns))
        noise.patterns, largest = patterns, 0.0
        for known, new in zip(self.grouped(patterns), other.grouped(patterns), strict=True):
            first, second = noise.aligned(known, new)
            parts = (GramStatistics.of(_observed(sums.shifted(first.shift), noise)).sums() for sums in (first, second))
            largest = max(largest, *(difference(*pair) for pair in zip(*(p.values() for p in parts), strict=True)))
        return largest

    def grouped(self, patterns: Patterns) -> list[SufficientStatistics]:
        """The statistics with a group for each of these patterns, some perhaps without rows."""
        if patterns == self.patterns:
            return list(self.draws)
        places = [self.patterns.index(pattern) if pattern in self.patterns else None for pattern in patterns]
        return [
            GramStatistics.concatenate([sums.empty_group() if i is None else sums.of_group(i) for i in places])
            for sums in self.draws
        ]


def _observed(sums: SufficientStatistics, noise: NoiseModel) -> SufficientStatistics:
    """The sums over what is observed."""
    return sums.of_observed(noise.observed(len(sums.count), sums.count.device))


def difference(a: Tensor, b: Tensor) -> float:
    """The largest difference of two tensors, relative to the largest value of the second."""
    return float((a - b).abs().max() / b.abs().max().clamp_min(1e-300))
