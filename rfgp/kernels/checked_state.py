"""States of kernels that tell what they are states of, and are loaded wholly or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .. import _state
from .map_holder import maps_kept_on_error


class DescribedState(torch.nn.Module):
    """A kernel whose state carries a code of its kind and settings."""

    @property
    def description(self) -> str:
        """What a state has to agree in beside its tensors: the kind of the kernel, and settings that are no tensors."""
        return f"{type(self).__name__}()"

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """As for every module, but all or nothing.

        :raises ValueError: for the state of another kernel, method or width; this kernel stays as it was.
        """
        with maps_kept_on_error(self):
            _state.check(self, state_dict, strict=strict)
            return super().load_state_dict(state_dict, strict, assign)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        with maps_kept_on_error(self):
            _state.check(self, state_dict, prefix)
            super()._load_from_state_dict(state_dict, prefix, *args)

    def prepare_for(self, state: Mapping[str, Tensor], prefix: str) -> None:
        """Raise a ValueError where a state, whose names begin with ``prefix``, is that of another kind of kernel."""
        saved = state.get(f"{prefix}_extra_state")
        if saved is not None and int(saved.flatten()[0]) != _state.code(self.description):
            raise ValueError(
                f"expected the state of {self.description}, got that of another kernel; load it into a kernel that is "
                "made as the saved one was"
            )

    def get_extra_state(self) -> Tensor:
        """A code of what a state has to agree in."""
        return torch.tensor([_state.code(self.description)])

    def set_extra_state(self, state: Tensor) -> None:
        """Nothing is left to do where ``prepare_for`` has found the same."""
