"""What a pass over rows adds up for a weight-space model."""

from __future__ import annotations

from typing import NamedTuple

from ..inference import GramStatistics, NoiseModel, TrainingRows
from .impropriety import SomeRows

Patterns = tuple[tuple[bool, ...], ...]


class RowSums(NamedTuple):
    """The sums over some rows for every draw of the random weights, which can be merged with those over others.

    :param draws: the statistics for every draw.
    :param patterns: which outputs are observed in every group of rows, where groups differ in that.
    :param some: rows of complex targets on which residuals will be looked at.
    :param rows: the rows, where gradients are to run back to them; those of merged sums are not known.
    :param num_rows: the number of rows, also of those without a target.
    """

    draws: tuple[GramStatistics, ...]
    patterns: Patterns = ()
    some: SomeRows | None = None
    rows: TrainingRows | None = None
    num_rows: int = 0

    def merged(self, other: RowSums, noise: NoiseModel) -> RowSums:
        """The sums over the rows of both.

        :param other: the sums over other rows, for the same draws.
        :param noise: the noise model, which knows how groups are merged.
        """
        patterns = (*self.patterns, *(pattern for pattern in other.patterns if pattern not in self.patterns))
        pairs = zip(self.grouped(patterns), other.grouped(patterns), strict=True)
        some = other.some if self.some is None or other.some is None else self.some.and_some_of(*other.some)
        draws = tuple(noise.merged(known, added) for known, added in pairs)
        return RowSums(draws, patterns, some, num_rows=self.num_rows + other.num_rows)

    def grouped(self, patterns: Patterns) -> list[GramStatistics]:
        """The statistics with a group for each of these patterns, some perhaps without rows."""
        if patterns == self.patterns:
            return list(self.draws)
        places = [self.patterns.index(pattern) if pattern in self.patterns else None for pattern in patterns]
        return [
            GramStatistics.concatenate([sums.empty_group() if i is None else sums.of_group(i) for i in places])
            for sums in self.draws
        ]
