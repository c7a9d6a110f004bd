"""What rows have to be before they are added to statistics."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _checks


def check_weights(features: Tensor, weights: Tensor | None, log_noise: Tensor | None) -> None:
    """Raise a ValueError where weights or log noises are not numbers, one per row of features."""
    if weights is not None:
        check_part("weights", weights, (len(features),), features)
        if bool((weights < 0).any()):
            raise ValueError(f"expected weights of at least 0, got {float(weights.min()):g}; they are precisions")
    if log_noise is not None:
        check_part("log_noise", log_noise, (len(features),), features)


def check_groups(features: Tensor, groups: Tensor | None, num_groups: int) -> None:
    """Raise a ValueError where groups are not numbers of groups, one per row of features."""
    if groups is None:
        return
    rows, kind = len(features), _checks.tensor(groups, "groups").dtype
    if kind not in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        raise ValueError(f"expected a tensor of integers for groups, got {kind}; number the groups from 0")
    if groups.shape != (rows,) or groups.device != features.device:
        raise ValueError(
            f"expected groups of shape {(rows,)} on {features.device}, one per row, got {tuple(groups.shape)} on "
            f"{groups.device}; give every row its group"
        )
    if rows and (int(groups.min()) < 0 or int(groups.max()) >= num_groups):
        raise ValueError(
            f"expected groups from 0 to {num_groups - 1}, got {int(groups.min())} to {int(groups.max())}; make the "
            "statistics with more num_groups"
        )


def check_part(
    name: str, value: Tensor, shape: tuple[int | None, ...], like: Tensor, is_complex_allowed: bool = False
) -> None:
    """Raise a ValueError where an argument of ``update`` is not a finite tensor of a shape (None: any length)."""
    if not isinstance(value, Tensor):
        raise ValueError(f"expected a torch.Tensor for {name}, got {type(value).__name__}; use torch.as_tensor")
    if value.layout is not torch.strided or value.device != like.device:
        raise ValueError(
            f"expected dense {name} on {like.device}, where the sums are, got {value.layout} on {value.device}; "
            f"convert them with .to_dense() and .to({str(like.device)!r})"
        )
    if not value.is_floating_point() and not (is_complex_allowed and value.is_complex()):
        wanted = "floating-point or complex" if is_complex_allowed else "floating-point"
        raise ValueError(f"expected {wanted} {name} for these statistics, got {value.dtype}; convert them")
    is_right = value.dim() == len(shape) and all(n in (None, m) for n, m in zip(shape, value.shape, strict=True))
    if not is_right:
        wanted = ", ".join("N" if n is None else str(n) for n in shape)
        raise ValueError(f"expected {name} of shape ({wanted}), got {tuple(value.shape)}; correct one of the two")
    _checks.finite(value.detach(), name)
