"""The dtype and the device of a module."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor


def reference_tensor(module: torch.nn.Module, default: Tensor | None = None) -> Tensor:
    """A tensor of the dtype and on the device of a module: its first parameter or buffer.

    :param module: any module.
    :param default: what stands for a module that has neither; default: an empty tensor of the default dtype.
    """
    buffers = (buffer for buffer in module.buffers() if buffer.is_floating_point())
    found = next(itertools.chain(module.parameters(), buffers), default)
    return torch.empty(0) if found is None else found
