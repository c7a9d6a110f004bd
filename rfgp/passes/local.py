"""Rows that this process reads: batches of a source, with a bar and a checkpoint on the way."""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from torch import Tensor
from tqdm.auto import tqdm

from .._support import checks
from ..data.batches import Batch, Batches
from .checkpoint import Checkpoint
from .reducer import Gradients, Reducer

if TYPE_CHECKING:
    from ..models.weight_space.conditioning import FeatureSummation
    from ..models.weight_space.row_sums import FeatureSums


class LocalReducer(Reducer):
    """Sums over batches, which are read once, and once more for every gradient.

    :param source: the batches.
    :param progress: whether a bar shows the rows; None for terminals alone.
    :param checkpoint: where sums are saved on the way, and from where the pass goes on; default: nowhere.
    """

    def __init__(
        self, source: Iterable[Batch], progress: bool | None = None, checkpoint: Checkpoint | None = None
    ) -> None:
        self.source, self.progress, self.checkpoint = source, progress, checkpoint
        self._num_rows = 0

    def sums(self, summation: FeatureSummation) -> FeatureSums:
        if self.checkpoint is None:
            running = self._shown(summation, self.source, None)
        else:
            running = self.checkpoint.sums(summation, self.source, functools.partial(self._shown, summation))
        found = collections.deque(running, maxlen=1)
        if not found:
            raise ValueError("expected at least one batch from the loader, got none; check that it is not used up")
        self._num_rows = found[0].num_rows
        return found[0]

    def gradients(self, summation: FeatureSummation, sums: FeatureSums, of_sums: Sequence[Tensor]) -> Gradients:
        return summation.gradients(sums, self.source, self._num_rows, of_sums)

    def _shown(
        self, summation: FeatureSummation, batches: Iterable[Batch], before: FeatureSums | None
    ) -> Iterator[FeatureSums]:
        """The sums after every batch, with a bar."""
        count = 0 if before is None else before.num_rows
        total = self.source.num_rows if isinstance(self.source, Batches) else None
        options = {"unit": " rows", "unit_scale": True, "disable": checks.no_bar(self.progress)}
        with tqdm(total=total, initial=count, desc="fit", leave=False, **options) as bar:
            for sums in summation.running(batches, before):
                bar.update(sums.num_rows - count)
                count = sums.num_rows
                yield sums
