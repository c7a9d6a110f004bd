"""What the features of all rows have in common, computed once for all chunks of rows."""

from __future__ import annotations

from typing import Any

import torch


class SharedTensors:
    """A context in which the features of a kernel are made with tensors that were computed before it.

    Kernels whose features share a factor, such as that of landmarks, have ``factor``, which computes it, and
    ``share_factor``, which takes it from outside, or None to compute it again.

    :param kernel: a kernel with features.
    """

    def __init__(self, kernel: torch.nn.Module) -> None:
        self._parts: list[Any] = [part for part in kernel.modules() if hasattr(part, "share_factor")]
        self.tensors = [part.factor() for part in self._parts]

    def __enter__(self) -> None:
        for part, factor in zip(self._parts, self.tensors, strict=True):
            part.share_factor(factor)

    def __exit__(self, *_: object) -> None:
        for part in self._parts:
            part.share_factor(None)
