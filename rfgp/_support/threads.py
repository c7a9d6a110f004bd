"""Threads of PyTorch beside those of Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_outer: list[int] = []
"""How many threads PyTorch had before :func:`one_thread`, while that holds."""


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for all products, so that workers do not share cores, and sums do not depend on thread counts."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    _outer.append(before)
    try:
        yield
    finally:
        _outer.pop()
        torch.set_num_threads(before)


def num_workers() -> int:
    """Threads for workers of our own: as many as PyTorch has, or had before :func:`one_thread`."""
    return _outer[-1] if _outer else torch.get_num_threads()
