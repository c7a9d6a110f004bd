"""Kernels with features in GPyTorch's variational models, whose matrices have the variance that features leave over."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.models import GP, ExactGP
from torch.nn.modules.module import register_module_module_registration_hook

from .compositions import include_residual


def _include_residual(owner: Any, name: str, part: torch.nn.Module | None) -> None:
    """Let kernels include the residual where they become part of a model that adds it nowhere else."""
    is_variational = isinstance(owner, GP) and not isinstance(owner, ExactGP)
    if part is not None and is_variational and not getattr(owner, "adds_residual_variance", False):
        include_residual(part)


def watch_models() -> None:
    """Look at what becomes part of models from now on; PyTorch calls this for every module."""
    register_module_module_registration_hook(_include_residual)
