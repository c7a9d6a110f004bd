"""The warning where a kernel with features inside comes out dense, given once."""

from __future__ import annotations

import warnings
from weakref import WeakSet

import torch

_WARNED: WeakSet[torch.nn.Module] = WeakSet()


def warn_of_dense(kernel: torch.nn.Module, text: str, stacklevel: int = 2) -> None:
    """Warn of a dense kernel, the first time for this one or a part of it."""
    if any(part in _WARNED for part in kernel.modules()):
        return
    _WARNED.add(kernel)
    warnings.warn(text, stacklevel=stacklevel + 1)
