"""The evidence of the rows of a loader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._support import checks
from ..approximation.width_warning import quiet
from ..data import ArraySource, Source, sample
from ..data.batches import Batch, batches, joined
from ..models import WeightSpaceGP
from ..passes import Shard
from ..passes.partitions import Partitions
from .objectives import WeightSpaceObjective
from .starts import random_rows

_SAMPLE = 2000


def first_pass(loader: Any, num_data: int | None = None) -> tuple[Batch, int]:
    """Up to 2,000 random rows of a loader, and how many it has.

    Where ``num_data`` is given, the first batches of a loader are enough, but not those of a source.
    """
    if isinstance(loader, Iterator):
        raise ValueError(
            f"expected batches that can be had again for every epoch, got the iterator {type(loader).__name__}, which "
            "is used up after one; pass a list or a torch DataLoader"
        )
    if num_data is not None and not isinstance(loader, Source):
        return _first_batches(loader), num_data
    is_shard = isinstance(loader, Shard)
    drawn = loader.sample(_SAMPLE, seed=0) if is_shard else sample(batches(loader, None, None), _SAMPLE, seed=0)
    tensors = drawn.tensors
    if drawn.num_rows <= _SAMPLE:
        order = torch.from_numpy(drawn.rows).argsort()
        tensors = tuple(values[order.to(values.device)] for values in tensors)
    x, y, *noise = tensors
    return (x, y, noise[0] if noise else None), drawn.num_rows


def _first_batches(loader: Iterable[Any]) -> Batch:
    seen: list[Batch] = []
    for batch in batches(loader, None, None):
        checks.inputs(batch[0])
        seen.append(batch)
        if sum(len(x) for x, _, _ in seen) >= _SAMPLE:
            break
    return joined(seen)


class LoaderObjective(WeightSpaceObjective):
    """Evidence of a weight-space model and the rows of a loader, which are read once for every evaluation.

    With an executor the loader is a source, or a list of partitions.
    """

    def __init__(self, model: WeightSpaceGP, loader: Any, y: Any, noise: Any, executor: Executor | None = None) -> None:
        if isinstance(loader, Tensor):
            loader, y, noise = ArraySource(loader, y, noise), None, None
        if y is not None or noise is not None:
            raise ValueError(
                f"expected batches (x, y) or (x, y, noise) alone, got y or noise beside {type(loader).__name__}; use "
                "tensors for x and y, or leave y and noise out"
            )
        is_parted = executor is not None and not isinstance(loader, Source)
        (x, y, noise), self.size = first_pass(_AllParts(loader) if is_parted else loader)
        self.loader, self.executor = loader, executor
        super().__init__(model, x, y, noise)
        if not model.sums_hold:
            with torch.no_grad(), quiet():
                self.fitted()

    @property
    def is_of_fit(self) -> bool:
        return True

    def read_rows(self) -> None:
        if self.executor is not None:
            self.model.condition(self.loader, executor=self.executor)
        else:
            self.model.condition(self.loader, progress=False)

    @property
    def num_rows(self) -> int:
        return self.size

    def agreed(self, values: np.ndarray) -> np.ndarray:
        if not isinstance(self.loader, Shard):
            return values
        shared = torch.from_numpy(values.copy())
        self.loader.ranks.broadcast_([shared])
        return shared.numpy()

    def some_rows(self) -> Tensor | None:
        """Rows of the random ones on which starts are compared; None where these are all."""
        return None if self.size == len(self.x) else random_rows(len(self.x)).to(self.x.device)


class _AllParts:
    """The batches of all partitions, one after the other."""

    def __init__(self, parts: Any) -> None:
        self.parts = Partitions(parts, None, None)

    def __iter__(self) -> Iterator[Batch]:
        for part in self.parts:
            yield from batches(part.batches, None, None)
