"""Random folds of rows."""

from __future__ import annotations

import torch
from torch import Tensor

from .._support import checks


def folds(num_rows: int, num_folds: int, seed: int = 0) -> Tensor:
    """Labels 0 to K - 1 of random folds, (N,) in int64, whose sizes differ by at most one.

    :param num_rows: the number N of rows.
    :param num_folds: the number K of folds, between 2 and N.
    :param seed: the seed; default: 0.
    :raises ValueError: for another number of folds.

    >>> folds(5, 2).bincount()
    tensor([3, 2])
    """
    rows = checks.positive_integer("num_rows", num_rows)
    count = checks.positive_integer("num_folds", num_folds, largest=rows)
    if count < 2:
        raise ValueError("expected at least two folds, got 1, without which no row is left; use more")
    generator = torch.Generator().manual_seed(checks.seed(seed))
    return torch.arange(rows).remainder(count)[torch.randperm(rows, generator=generator)]
