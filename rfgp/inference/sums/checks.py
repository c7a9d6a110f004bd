"""Whether rows suit statistics, and whether the tensors of statistics fit each other, or those of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..._support import checks

if TYPE_CHECKING:
    from .sufficient_statistics import TargetSums

_REAL = torch.float64, torch.complex128
_SIZES = {"cross": "gdk", "target_gram": "gkk", "count": "g", "log_noise": "g", "shift": "t"}


def check_tensors(state: Mapping[str, Any]) -> None:
    """Raise a ValueError where a value is no tensor, or sums with targets do not fit each other and Gram matrices."""
    strange = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if strange:
        raise ValueError(f"expected tensors, got others for {', '.join(strange)}; pass what state_dict() gives")
    columns = (1, *state["target_gram"].shape)[-1]
    width = (1, *state["gram"].shape)[-1] if "gram" in state else (*state["cross"].shape, 1, 1)[1]
    length = {"g": (*state["cross"].shape, 1)[0], "d": width, "k": columns, "t": columns - 1}
    for name, letters in _SIZES.items():
        _check(name, state[name], tuple(length[letter] for letter in letters))


def check_grams(state: Mapping[str, Tensor]) -> None:
    """Raise a ValueError where there is not a Gram matrix for every group."""
    _check("gram", state["gram"], (len(state["count"]), *state["cross"].shape[1:2] * 2))


def check_lags(state: Mapping[str, Tensor], size_of: Callable[[Tensor], int]) -> None:
    """Raise a ValueError where sums of differences of frequencies do not fit the orders of a grid."""
    orders, lags, cross = state["orders"], state["lags"], state["cross"]
    is_grid = orders.dim() == 2 and orders.dtype == torch.long and cross.shape[1] == 2 * len(orders) + 1
    if not is_grid or lags.shape != (len(state["count"]), 2, size_of(orders)) or lags.dtype != torch.float64:
        raise ValueError(
            f"expected orders (H, d) of a grid and sums of their differences beside {tuple(cross.shape)} products, got "
            f"{tuple(orders.shape)} and {tuple(lags.shape)}; pass what state_dict() gives"
        )


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
    rows, kind = len(features), checks.tensor(groups, "groups").dtype
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
    checks.finite(value.detach(), name)
