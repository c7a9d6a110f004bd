"""Rows of the data sets of the papers, and in a quick run of those that come with scikit-learn."""

from __future__ import annotations

import torch
from torch import Tensor

from rfgp.study import datasets

from .item import Options

QUICK_ROWS = 300


def unit_rows(name: str, options: Options, center: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Unit-normalized float32 inputs and labels, to train on and to test on; the digits of scikit-learn if quick.

    :param center: whether the mean of the training inputs is taken off first.
    """
    data = datasets.load("digits" if options.quick else name, options.data_dir)
    mean = data.x_train.mean(0) if center else torch.zeros(())
    x, x_test = (torch.nn.functional.normalize(part - mean, dim=-1).float() for part in (data.x_train, data.x_test))
    if not options.quick:
        return x, data.y_train, x_test, data.y_test
    return x[:QUICK_ROWS], data.y_train[:QUICK_ROWS], x_test[:QUICK_ROWS], data.y_test[:QUICK_ROWS]


def some(x: Tensor, count: int, seed: int = 0) -> Tensor:
    """A random part of the rows."""
    return x[torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:count]]


def with_constant(x: Tensor) -> Tensor:
    """One more column of ones, for the kernel (x.y + 1)^p, and zeros up to a power of two."""
    rows = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], dim=-1)
    return torch.nn.functional.pad(rows, (0, (1 << (rows.shape[-1] - 1).bit_length()) - rows.shape[-1]))
