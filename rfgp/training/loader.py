"""The evidence of the rows of a loader."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..approximation.width_warning import quiet
from ..data import ArraySource, Source
from ..data.batches import Batch, batches
from ..models import WeightSpaceGP
from ..passes import Shard
from ..passes.partitions import Partitions
from .minibatches import first_pass
from .objectives import WeightSpaceObjective
from .starts import random_rows


class LoaderObjective(WeightSpaceObjective):
    """Evidence of a weight-space model and the rows of a loader, which are read once for every evaluation.

    With an executor the loader is a source, or a list of partitions.
    """

    def __init__(self, model: WeightSpaceGP, loader: Any, executor: Executor | None = None) -> None:
        is_parted = executor is not None and not isinstance(loader, Source)
        (x, y, noise), self.count = first_pass(_AllParts(loader) if is_parted else loader)
        self.loader, self.executor = loader, executor
        super().__init__(model, x, y, noise)
        if not model.sums_hold:
            with torch.no_grad(), quiet():
                self.fitted()

    def evidence_of_all(self) -> Tensor:
        return self.fitted().log_marginal_likelihood()

    def read_rows(self) -> None:
        if self.executor is not None:
            self.model.condition(self.loader, executor=self.executor)
        else:
            self.model.condition(self.loader, progress=False)

    @property
    def num_rows(self) -> int:
        return self.count

    def agreed(self, values: np.ndarray) -> np.ndarray:
        if not isinstance(self.loader, Shard):
            return values
        shared = torch.from_numpy(values.copy())
        self.loader.ranks.broadcast_([shared])
        return shared.numpy()

    def some_rows(self) -> Tensor | None:
        """Rows of the random ones on which starts are compared; None where these are all."""
        return None if self.count == len(self.x) else random_rows(len(self.x)).to(self.x.device)


class _AllParts:
    """The batches of all partitions, one after the other."""

    def __init__(self, parts: Any) -> None:
        self.parts = Partitions(parts, None, None)

    def __iter__(self) -> Iterator[Batch]:
        for part in self.parts:
            yield from batches(part.batches, None, None)


def loader_objective(
    model: WeightSpaceGP, loader: Any, y: Any, noise: Any, executor: Executor | None = None
) -> LoaderObjective:
    """The evidence of the rows of a loader, or a ValueError where it is given with what it cannot go with."""
    if isinstance(loader, Tensor):
        loader, y, noise = ArraySource(loader, y, noise), None, None
    if y is not None or noise is not None:
        raise ValueError(
            f"expected batches (x, y) or (x, y, noise) alone, got y or noise beside {type(loader).__name__}; use "
            "tensors for x and y, or leave y and noise out"
        )
    return LoaderObjective(model, loader, executor)
