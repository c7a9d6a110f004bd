"""A progress bar over the phases of a fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm.auto import tqdm


class Phases:
    """The phases of a fit, which a bar names where it is wanted."""

    def __init__(self, bar: Any) -> None:
        self._bar, self._has_begun = bar, False

    def begin(self, name: str) -> None:
        """End the present phase, and begin another."""
        if self._has_begun:
            self._bar.update()
        self._has_begun = True
        self._bar.set_description(name)


@contextmanager
def phases(names: tuple[str, ...], is_shown: bool) -> Iterator[Phases]:
    """The phases of a fit, as many as there are names."""
    with tqdm(total=len(names), unit="phase", disable=not is_shown) as bar:
        yield Phases(bar)
        bar.update(bar.total - bar.n)
