"""When a training is to end: everything that takes time asks beforehand whether there is enough left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

SHORT = 0.5
"""Seconds that the least training may take after a time limit, which else leaves parameters where they start."""
_LEAST, _SHORTEST = 0.01, 1e-9
"""Seconds of a time limit that has come, which has to be positive, and of work that takes none."""


def clock() -> float:
    """Seconds by the clock."""
    return time.perf_counter()


@dataclass(frozen=True)
class Deadline:
    """When something is to have ended."""

    end: float = math.inf

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        """In some seconds from now; None for never."""
        return cls() if seconds is None else cls(clock() + seconds)

    @property
    def is_set(self) -> bool:
        """Whether there is one."""
        return math.isfinite(self.end)

    @property
    def left(self) -> float:
        """The seconds until then, zero where it is over."""
        return max(0.0, self.end - clock())

    @property
    def limit(self) -> float | None:
        """The seconds that are left as the time limit of another call, never zero; None for no limit."""
        return max(self.left, _LEAST) if self.is_set else None

    def allows(self, seconds: float = 0.0) -> bool:
        """Whether work of so many seconds would end before."""
        return seconds < self.left

    def or_shortly(self, seconds: float) -> Deadline:
        """The same where it allows work of so many seconds; else a short time from now."""
        return self if self.allows(seconds) else Deadline.after(SHORT)

    def earlier(self, seconds: float) -> Deadline:
        """One that leaves so many seconds for what comes after, but no more than half of all that is left."""
        return Deadline(self.end - min(seconds, 0.5 * self.left)) if self.is_set else self

    def affordable(self, work: Callable[[int], object], most: int, fewest: int, times: float = 1.0) -> int:
        """So many rows that work on them can be done so many times before, between the fewest and the most.

        :param work: done twice for the fewest rows, which tells how long it takes; the first time does not count.
        """
        if not self.is_set or most <= fewest:
            return most
        work(fewest)
        began = clock()
        work(fewest)
        seconds = max(clock() - began, _SHORTEST) / fewest
        return min(most, max(fewest, int(self.left / (times * seconds))))

    def share(self, fraction: float) -> Deadline:
        """After a part of the seconds that are left."""
        return Deadline(clock() + fraction * self.left) if self.is_set else self


NEVER = Deadline()
