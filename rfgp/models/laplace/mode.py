"""What a model by Laplace's approximation is conditioned on: the mode, and the sums there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..._support import states
from ...inference.latent.laplace import LaplaceSums
from ..record import Record

_MODE, _RECORD = "laplace.", "fitted_with."


class LaplaceMode(NamedTuple):
    """The mode, the sums over the training data there, and what both depend on."""

    weights: Tensor
    sums: LaplaceSums
    record: Record

    def to(self, device: torch.device) -> LaplaceMode:
        """The same on a device."""
        sums = LaplaceSums(*(part.to(device) for part in self.sums[:3]))
        return LaplaceMode(self.weights.to(device), sums, self.record.to(device))

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors by name."""
        tensors = {"weights": self.weights, **dict(zip(LaplaceSums._fields, self.sums[:3], strict=False))}
        state = {_MODE + name: value.clone() for name, value in tensors.items() if isinstance(value, Tensor)}
        return state | {_RECORD + name: value.clone() for name, value in self.record.tensors.items()}

    @classmethod
    def split(cls, state: Mapping[str, Any], prefix: str = "") -> tuple[dict[str, Any], LaplaceMode | None]:
        """The state of the parts of a model and, if there, what was fitted; a ValueError for a broken state."""
        states.check_mapping(state)
        kinds = tuple(prefix + kind for kind in (_MODE, _RECORD))
        tensors = {name: value for name, value in state.items() if name.startswith(kinds)}
        rest = {name: value for name, value in state.items() if name not in tensors}
        if not tensors:
            return rest, None
        names = [kinds[0] + name for name in ("weights", *LaplaceSums._fields[:3])]
        if any(name not in tensors for name in names) or not all(
            isinstance(value, Tensor) for value in tensors.values()
        ):
            raise ValueError(f"expected tensors for {', '.join(names)}, got a state without some; save it again")
        weights, *sums = (tensors.pop(name).clone() for name in names)
        record = Record({name.removeprefix(kinds[1]): value for name, value in tensors.items()})
        return rest, cls(weights, LaplaceSums(*sums), record)
