"""Runs in random order, of which the first ones vary."""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def in_random_order(values: Tensor) -> Tensor:
    """Numbers (N,) of values (N,): the smallest and the largest one first, then all others in random order.

    >>> in_random_order(torch.tensor([5, 5, 7, 4]))[:2]
    tensor([3, 2])
    """
    ends = torch.stack([values.argmin(), values.argmax()])
    order = torch.randperm(len(values), generator=Generator().manual_seed(0))
    return torch.cat([ends, order[~torch.isin(order, ends)]])
