"""What kernels share that are another kernel of other coordinates."""

from __future__ import annotations

from typing import Any

from torch import Tensor


class ChangesInputs:
    """A kernel around a base kernel, whose inputs it makes from its own."""

    base_kernel: Any

    def coordinates(self, x: Tensor) -> Tensor:
        """The inputs of the base kernel, from selected inputs (..., N, d)."""
        raise NotImplementedError
