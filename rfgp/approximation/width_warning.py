"""Advice about the cost of kernels with features, given once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from weakref import WeakSet

import torch

_ADVISED: WeakSet[torch.nn.Module] = WeakSet()
_IS_QUIET = ContextVar("is_quiet", default=False)


def warn_of_width(kernel: torch.nn.Module, text: str, stacklevel: int = 2) -> None:
    """Warn that a kernel has more features than training rows, the first time for it or a part of it."""
    if _IS_QUIET.get():
        return
    parts = [part for part in kernel.modules() if hasattr(type(part), "exact_kernel")]
    if any(part in _ADVISED for part in parts):
        return
    _ADVISED.update(parts)
    warnings.warn(f"{text}: the exact kernel costs less", stacklevel=stacklevel + 1)


@contextmanager
def quiet() -> Iterator[None]:
    """No advice while parameters are tried: it is given once, by the fit at the end."""
    token = _IS_QUIET.set(True)
    try:
        yield
    finally:
        _IS_QUIET.reset(token)


_WARNED: WeakSet[torch.nn.Module] = WeakSet()


def warn_of_dense(kernel: torch.nn.Module, text: str, stacklevel: int = 2) -> None:
    """Warn of a dense kernel, the first time for this one or a part of it."""
    if any(part in _WARNED for part in kernel.modules()):
        return
    _WARNED.add(kernel)
    warnings.warn(text, stacklevel=stacklevel + 1)
