"""Sums over many rows whose gradients are found chunk by chunk, so that little is held at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def chunked_sum(values: Callable[[Tensor], Tensor], rows: Tensor, size: int, parameters: list[Any]) -> Tensor:
    """The sum of the values of rows (n, ...), ``size`` of these at a time, with gradients in the parameters."""
    chunks = rows.split(size)
    if not torch.is_grad_enabled():
        return torch.stack([values(chunk).sum() for chunk in chunks]).sum()
    total, slopes = torch.zeros((), dtype=torch.float64), [torch.zeros_like(p) for p in parameters]
    for chunk in chunks:
        value = values(chunk).sum()
        gradients = torch.autograd.grad(value, parameters, allow_unused=True)
        total = total + value.detach()
        slopes = [slope if g is None else slope + g for slope, g in zip(slopes, gradients, strict=True)]
    for slope, parameter in zip(slopes, parameters, strict=True):
        total = total + (slope * (parameter - parameter.detach())).sum()
    return total
