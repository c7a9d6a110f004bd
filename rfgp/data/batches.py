"""The data of a fit as batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from .base import Source, with_same_columns
from .row_noise import joined_noise

Batch = tuple[Tensor, Tensor, Any]
"""Inputs, targets, and the noise of rows: variances, :class:`~rfgp.data.row_noise.WeightedNoise`, or None."""


class Batches:
    """The batches (x, y) or (x, y, noise) of a loader, which are gone through as often as these are."""

    def __init__(self, loader: Iterable[Any]) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Batch]:
        loader = self.loader.batches() if isinstance(self.loader, Source) else self.loader
        return map(_unpack, with_same_columns(loader))

    @property
    def num_rows(self) -> int | None:
        """The number of all rows, where it is known."""
        return self.loader.num_rows if isinstance(self.loader, Source) else None

    @property
    def description(self) -> str:
        """What the rows are of."""
        return self.loader.description if isinstance(self.loader, Source) else f"a {type(self.loader).__name__}"


def batches(x: Any, y: Any, noise: Any) -> Iterable[Batch]:
    """The data of a fit as batches: one of tensors, or those of a loader."""
    if isinstance(x, Tensor):
        if y is None:
            raise ValueError("expected targets y beside the inputs, got none; call condition(x, y)")
        return [(x, y, noise)]
    if y is not None or noise is not None:
        beside = "y" if y is not None else "noise or exposures"
        raise ValueError(
            f"expected a torch.Tensor for x beside {beside}, got {type(x).__name__}; use torch.as_tensor, or give "
            "batches (x, y), (x, y, noise) or, of counts, (x, y, exposure) from a loader alone"
        )
    if not isinstance(x, Iterable):
        raise ValueError(f"expected inputs x, or batches from a loader, got {type(x).__name__}; call condition(x, y)")
    return Batches(x)


def joined(parts: list[Batch]) -> Batch:
    """Several batches as one."""
    if not parts:
        raise ValueError("expected at least one batch from the loader, got none; check that it is not used up")
    x, y, noises = zip(*parts, strict=True)
    return torch.cat(x), torch.cat(y), joined_noise(noises)


def _unpack(batch: Any) -> Batch:
    if not isinstance(batch, list | tuple) or len(batch) not in (2, 3):
        got = "inputs (x,) alone" if isinstance(batch, list | tuple) and len(batch) == 1 else type(batch).__name__
        raise ValueError(
            f"expected batches (x, y) or (x, y, noise) from the loader, got {got}; yield pairs, or give a source its "
            "targets"
        )
    x, y, *noise = batch
    return x, y, noise[0] if noise else None
