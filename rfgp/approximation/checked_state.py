"""States of kernels that name their kernel, and are loaded completely or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .._support import states
from .maps import maps_kept_on_error


class CheckedState(torch.nn.Module):
    """A kernel whose state carries a code of its class and settings, which loading compares."""

    @property
    def description(self) -> str:
        """The class and the settings of the kernel, which a loaded state has to match."""
        return f"{type(self).__name__}()"

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load a state as torch modules do; on an error, such as for another kernel's, the kernel stays as it was."""
        with maps_kept_on_error(self):
            states.check(self, state_dict, strict=strict)
            return super().load_state_dict(state_dict, strict, assign)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        with maps_kept_on_error(self):
            states.check(self, state_dict, prefix)
            super()._load_from_state_dict(state_dict, prefix, *args)

    def prepare_for(self, state: Mapping[str, Tensor], prefix: str) -> None:
        """Raise a ValueError where a state, whose names begin with ``prefix``, is that of another kind of kernel."""
        saved = state.get(f"{prefix}_extra_state")
        if saved is not None and int(saved.flatten()[0]) != states.code(self.description):
            raise ValueError(
                f"expected the state of {self.description}, got that of another kernel; load it into a kernel that is "
                "made as the saved one was"
            )

    def get_extra_state(self) -> Tensor:
        """The code of :attr:`description`."""
        return torch.tensor([states.code(self.description)])

    def set_extra_state(self, state: Tensor) -> None:
        """Do nothing: :meth:`prepare_for` has compared the code."""
