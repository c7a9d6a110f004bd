"""The dtype and the device of a module."""

from __future__ import annotations

import torch
from torch import Tensor


def reference_tensor(module: torch.nn.Module, default: Tensor | None = None) -> Tensor:
    """The first parameter or floating-point buffer of a module, or a default: its dtype and device."""
    for parameter in module.parameters():
        return parameter
    for buffer in module.buffers():
        if buffer.is_floating_point():
            return buffer
    return torch.empty(0) if default is None else default
