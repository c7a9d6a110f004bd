"""The processor seconds of a piece of work over those of another, measured in turn, so that machines matter little."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

Work = Callable[[], object]


def ratio(work: Work, other: Work, repeats: int = 5) -> float:
    """The ratio of median processor seconds, after one warm-up of each."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for repeat in range(repeats + 1):
        for function, own in zip((work, other), seconds, strict=True):
            start = time.process_time()
            function()
            if repeat > 0:
                own.append(time.process_time() - start)
    return statistics.median(seconds[0]) / statistics.median(seconds[1])
