"""How the mode of a model by Laplace's approximation is saved beside its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..._support import states
from ..record import Record
from .local_mode import LocalMode
from .mode import LaplaceMode

_MODE, _RECORD = "laplace.", "fitted_with."

Mode = LaplaceMode | LocalMode
"""The mode of weights, or of a function at rows in blocks."""


def named(mode: Mode, prefix: str) -> dict[str, Tensor]:
    """The tensors of a mode by name."""
    parts = {_MODE: mode.state_dict(), _RECORD: mode.record.tensors}
    return {prefix + kind + name: value.clone() for kind, part in parts.items() for name, value in part.items()}


def split(state: Mapping[str, Any], prefix: str = "") -> tuple[dict[str, Any], Mode | None]:
    """The state of the parts of a model and, if there, what was fitted; a ValueError for a broken state."""
    states.check_mapping(state)
    kinds = tuple(prefix + kind for kind in (_MODE, _RECORD))
    tensors = {name: value for name, value in state.items() if name.startswith(kinds)}
    rest = {name: value for name, value in state.items() if name not in tensors}
    if not tensors:
        return rest, None
    if not all(isinstance(value, Tensor) for value in tensors.values()):
        raise ValueError("expected tensors for what was fitted, got others in the state; save it again")
    found, record = (
        {name.removeprefix(kind): value.clone() for name, value in tensors.items() if name.startswith(kind)}
        for kind in kinds
    )
    kind = LocalMode if "log_evidence" in found else LaplaceMode
    try:
        return rest, kind.restored(found, Record(record))
    except KeyError as error:
        raise ValueError(f"expected a tensor for {error}, got a state without it; save it again") from None
