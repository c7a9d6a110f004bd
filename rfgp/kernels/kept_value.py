"""A value that is computed of tensors, and kept until one of them changes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class KeptValue:
    """A tensor computed of others, kept while these have the same values, and no gradients run through it.

    GPyTorch changes parameters by ``.data``, which no version counter sees: values are compared. A copy or a pickle of
    it starts empty.

    >>> kept, x = KeptValue(), torch.ones(2)
    >>> kept.of([x], lambda: 2.0 * x) is kept.of([x], lambda: 2.0 * x)
    True
    """

    def __init__(self) -> None:
        self._known: tuple[list[Tensor], Tensor] | None = None

    def of(self, tensors: list[Tensor], compute: Callable[[], Tensor]) -> Tensor:
        """The value, computed anew where a tensor has changed, or gradients run back to one."""
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return compute()
        if self._known is None or not _are_same(self._known[0], tensors):
            with torch.inference_mode(False), torch.no_grad():
                self._known = [tensor.clone() for tensor in tensors], compute()
        return self._known[1]

    def __reduce__(self) -> tuple[type[KeptValue], tuple[()]]:
        return KeptValue, ()


def _are_same(known: list[Tensor], now: list[Tensor]) -> bool:
    pairs = zip(known, now, strict=False)
    return len(known) == len(now) and all(
        a.shape == b.shape and a.dtype == b.dtype and a.device == b.device and torch.equal(a, b) for a, b in pairs
    )
