"""Observations of one task per row as rows of all tasks, of which all but one are missing."""

from __future__ import annotations

import torch
from torch import Tensor

from .._support import checks


def task_columns(y: Tensor, tasks: Tensor, num_tasks: int) -> Tensor:
    """Targets of one task per row as a matrix (N, T) with a column per task, NaN where another task was observed.

    With a MultitaskKernel it gives the posterior of a data kernel times an IndexKernel.

    :param y: targets, (N,).
    :param tasks: the number of the task of each row, (N,), integers from 0 to T - 1.
    :param num_tasks: T.
    :raises ValueError: for tasks of another length, that are not such integers, or that would not fit in memory.

    >>> task_columns(torch.tensor([1.0, 2.0]), torch.tensor([1, 0]), 2)
    tensor([[nan, 1.],
            [2., nan]])
    """
    if checks.floating(y, "y").dim() != 1:
        raise ValueError(f"expected floating-point targets (N,), got {y.dtype} {tuple(y.shape)}; flatten them")
    count = checks.positive_integer("num_tasks", num_tasks)
    checks.integers(tasks, "tasks", "tasks")
    if tasks.shape != y.shape or (len(y) and not 0 <= int(tasks.min()) <= int(tasks.max()) < count):
        wanted = f"{tuple(y.shape)} from 0 to {count - 1}"
        raise ValueError(f"expected integer tasks of shape {wanted}, got {_found(tasks)}; renumber them")
    what = f"{len(y)} rows of {count} tasks"
    checks.fits_in_memory(float(len(y) * count * y.element_size()), what, "renumber the tasks from 0")
    columns = y.new_full((len(y), count), torch.nan)
    return columns.scatter(1, tasks.long().unsqueeze(-1), y.unsqueeze(-1))


def _found(tasks: Tensor) -> str:
    return f"{tuple(tasks.shape)}" + (f" from {int(tasks.min())} to {int(tasks.max())}" if tasks.numel() else "")
