"""What the features of all rows have in common, computed once for all chunks of rows."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class HasFactor(Protocol):
    """A kernel whose features share a factor, such as that of landmarks."""

    def factor(self) -> Tensor:
        """The factor, differentiable."""

    def share_factor(self, factor: Tensor | None) -> None:
        """Take the factor from outside; None to compute it again."""


class SharedTensors:
    """A context in which the features of a kernel are made with tensors that were computed before it.

    :param kernel: a kernel with features.
    """

    def __init__(self, kernel: torch.nn.Module) -> None:
        self._parts: list[Any] = [part for part in kernel.modules() if isinstance(part, HasFactor)]
        self.tensors = [part.factor() for part in self._parts]

    def __enter__(self) -> None:
        for part, factor in zip(self._parts, self.tensors, strict=True):
            part.share_factor(factor)

    def __exit__(self, *_: object) -> None:
        for part in self._parts:
            part.share_factor(None)
