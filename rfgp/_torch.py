"""The private names of PyTorch that concern its transforms."""

from __future__ import annotations

import torch


def is_transformed() -> bool:
    """Whether a transform of ``torch.func`` is under way."""
    return torch._C._functorch.peek_interpreter_stack() is not None
