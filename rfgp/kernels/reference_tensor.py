"""The dtype and the device of a module."""

from __future__ import annotations

import torch
from torch import Tensor


def reference_tensor(module: torch.nn.Module, default: Tensor | None = None) -> Tensor:
    """A tensor of the dtype and on the device of a module: its first parameter or buffer.

    :param module: any module.
    :param default: what stands for a module that has neither; default: an empty tensor of the default dtype.
    """
    tensors = [*module.parameters(), *(b for b in module.buffers() if b.is_floating_point())]
    return tensors[0] if tensors else torch.empty(0) if default is None else default
