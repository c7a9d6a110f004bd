"""A bar that shows how many rows have been added up, and the time that is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tqdm.auto import tqdm

from .. import _checks
from .batches import Batch
from .row_sums import RowSums

Running = Callable[[Iterable[Batch], RowSums | None], Iterator[RowSums]]
"""Takes batches and the sums before them, and yields the sums after each batch."""


def shown(running: Running, num_rows: int | None, progress: bool | None) -> Running:
    """The same sums with a bar.

    :param running: the sums.
    :param num_rows: the number of all rows, where it is known.
    :param progress: whether there is a bar; None for terminals alone.
    """

    def with_bar(batches: Iterable[Batch], known: RowSums | None) -> Iterator[RowSums]:
        before = 0 if known is None else known.num_rows
        options = {"unit": " rows", "unit_scale": True, "disable": _checks.no_bar(progress)}
        with tqdm(total=num_rows, initial=before, desc="fit", leave=False, **options) as bar:
            for sums in running(batches, known):
                bar.update(sums.num_rows - before)
                before = sums.num_rows
                yield sums

    return with_bar
