"""Whether the tensors of statistics fit each other, or those of others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .target_sums import TargetSums

_REAL = torch.float64, torch.complex128
_SIZES = {"cross": "gdk", "target_gram": "gkk", "count": "g", "log_noise": "g", "shift": "t"}


def check_tensors(state: Mapping[str, Any]) -> None:
    """Raise a ValueError where a value is no tensor, or sums with targets do not fit each other and Gram matrices."""
    strange = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if strange:
        raise ValueError(f"expected tensors, got others for {', '.join(strange)}; pass what state_dict() gives")
    width, columns = ((1, *state[name].shape)[-1] for name in ("gram", "target_gram"))
    length = {"g": (*state["cross"].shape, 1)[0], "d": width, "k": columns, "t": columns - 1}
    for name, letters in _SIZES.items():
        _check(name, state[name], tuple(length[letter] for letter in letters))


def check_grams(state: Mapping[str, Tensor]) -> None:
    """Raise a ValueError where there is not a Gram matrix for every group."""
    _check("gram", state["gram"], (len(state["count"]), *state["cross"].shape[1:2] * 2))


def check_held_rows(state: Mapping[str, Tensor]) -> None:
    """Raise a ValueError where rows and Gram matrices are not those of groups, every one of which has one of both."""
    held, dense, groups, gram = (state[name] for name in ("rows", "dense", "row_groups", "gram"))
    size, width = len(state["count"]), gram.shape[-1]
    numbers = torch.cat([dense.reshape(-1), groups.reshape(-1)])
    is_whole = (
        held.dim() == 2
        and held.shape == (len(groups), width)
        and held.is_complex() == gram.is_complex()
        and (held.is_floating_point() or held.is_complex())
        and gram.shape == (len(dense), width, width)
        and numbers.dtype == torch.long
        and bool(((numbers >= 0) & (numbers < size)).all())
        and len(dense.unique()) == len(dense)
    )
    if not is_whole:
        raise ValueError(
            f"expected rows (M, {width}) and Gram matrices (P, {width}, {width}) with the numbers of their groups "
            f"below {size}, got {tuple(held.shape)} and {tuple(gram.shape)}; pass what state_dict() gives"
        )


def check_alike(gram: Tensor, other_gram: Tensor, targets: TargetSums, others: TargetSums) -> None:
    """Raise a ValueError where sums have other shapes, dtypes or devices than those that they are combined with."""
    pairs = zip((*targets[:3], gram), (*others[:3], other_gram), strict=True)
    for name, (old, new) in zip(("cross", "target_gram", "count", "gram"), pairs, strict=True):
        if old.shape != new.shape or old.dtype != new.dtype or old.device != new.device:
            raise ValueError(
                f"expected statistics of the same model, with {name} {tuple(old.shape)} {old.dtype} on {old.device}, "
                f"got {tuple(new.shape)} {new.dtype} on {new.device}; combine like with like"
            )


def _check(name: str, value: Tensor, wanted: tuple[int, ...]) -> None:
    shape = tuple(value.shape)
    if shape != wanted or value.dtype not in (_REAL[:1] if len(wanted) == 1 and name != "shift" else _REAL):
        raise ValueError(
            f"expected {name} of shape {wanted} in double precision beside the other sums, got {shape} {value.dtype}; "
            "pass what state_dict() gives"
        )
