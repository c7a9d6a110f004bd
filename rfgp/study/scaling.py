"""Scales of inputs and targets."""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor

from .._support import checks
from .datasets.base import Scaling


def scale_inputs(train: Tensor, test: Tensor, scaling: Scaling) -> tuple[Tensor, Tensor, str]:
    """Scaled inputs (N, d) and (M, d), and in words what was done to them."""
    checks.choice("scaling", scaling, get_args(Scaling))
    checks.finite(checks.inputs(train, name="train"), "train")
    checks.finite(checks.inputs(test, train.shape[-1], "test"), "test")
    if scaling == "none":
        return train, test, "inputs as they are"
    if scaling == "unit":
        train, test = (
            x / divisor(x.norm(dim=-1, keepdim=True), (x != 0).any(-1, keepdim=True), "inputs") for x in (train, test)
        )
        return train, test, "rows of the inputs divided by their norms"
    mean = train.mean(0)
    std = divisor(train.std(0, correction=0), (train != train[:1]).any(0), "inputs") * train.shape[-1] ** 0.5
    return (train - mean) / std, (test - mean) / std, "columns of the inputs standardized, and divided by sqrt(d)"


def scale_field(train: Tensor, test: Tensor, scaling: Scaling) -> tuple[Tensor, Tensor, str]:
    """Scaled places of a vector field, which keep their angles: all columns are divided by the same number."""
    if scaling != "standardize":
        checks.choice("scaling of a field", scaling, ("standardize", "none"))
        return scale_inputs(train, test, scaling)
    mean = train.mean(0)
    scale = divisor((train - mean).square().sum(-1).mean().sqrt(), (train != train[:1]).any(), "inputs")
    return (train - mean) / scale, (test - mean) / scale, "inputs centered, and divided by one number"


def divisor(scale: Tensor, varies: Tensor, name: str) -> Tensor:
    """Scales to divide by, 1 where nothing varies, or a ValueError where squares leave the range of float64."""
    bad = ~torch.isfinite(scale) | (varies & (scale == 0))
    if bool(bad.any()):
        raise ValueError(
            f"expected {name} whose squares are within the range of float64, got a scale of {float(scale[bad][0]):g}; "
            "multiply them by a constant"
        )
    return torch.where(scale > 0, scale, torch.ones_like(scale))
