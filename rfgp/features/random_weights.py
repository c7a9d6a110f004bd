"""What feature maps share that have random weights: drawing them, and saving, loading and keeping them."""

from __future__ import annotations

import abc
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Generator, Tensor

from .._support import checks, states


class RandomWeights(torch.nn.Module, abc.ABC):
    """A module with random weights in its buffers, which it can draw anew and load; it refuses states of other maps."""

    input_dim: int
    num_features: int

    def __init__(self) -> None:
        super().__init__()
        self._own_version = 0

    @property
    def version(self) -> int:
        """How many times the weights have been replaced, by ``resample`` or ``load_state_dict``; caches compare it."""
        total = 0
        for part in self.modules():
            if isinstance(part, RandomWeights):
                total += part._own_version
        return total

    def resample(self, generator: Generator | None = None) -> Self:
        """Draw new weights in place, and return the map."""
        with weights_kept_on_error(self):
            for name, weight in self._draw(checks.generator(generator)).items():
                getattr(self, name).copy_(weight)
            self._own_version += 1
        return self

    @abc.abstractmethod
    def _draw(self, generator: Generator | None) -> dict[str, Tensor]:
        """New weights by buffer name: float64 (or integer) tensors on the CPU."""

    def _register_weights(self, generator: Generator | None, dtype: torch.dtype | None) -> None:
        stored = checks.weight_dtype(dtype)
        for name, weight in self._draw(checks.generator(generator)).items():
            self.register_buffer(name, weight.to(stored) if weight.is_floating_point() else weight)

    @property
    def description(self) -> str:
        """Class, sizes and settings of the map and its parts, without the weights; a loaded state has to match it."""
        maps = [(name, part) for name, part in self.named_modules() if isinstance(part, RandomWeights)]
        texts = [f"{name} {type(part).__name__}({part.extra_repr()})" for name, part in maps]
        return re.sub(r" at 0x[0-9a-f]+", "", "; ".join(texts))

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load a state as torch modules do; on an error, such as for another map's, the module stays as it was."""
        states.check(self, state_dict, strict=strict)
        return super().load_state_dict(state_dict, strict, assign)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        states.check(self, state_dict, prefix)
        before = [buffer.clone() for buffer in self.buffers(recurse=False)]
        super()._load_from_state_dict(state_dict, prefix, *args)
        pairs = zip(before, self.buffers(recurse=False), strict=True)
        self._own_version += any(not torch.equal(old, new) for old, new in pairs)

    def prepare_for(self, state: Mapping[str, Tensor], prefix: str) -> None:
        """Raise a ValueError where a state, whose names begin with ``prefix``, is that of another map."""
        saved, expected = state.get(f"{prefix}_extra_state"), self.get_extra_state()
        if saved is None or torch.equal(saved.to(expected), expected):
            return
        sizes = f", of {int(saved[1])} columns for inputs of {int(saved[0])}" if saved.shape == expected.shape else ""
        raise ValueError(
            f"expected the state of {type(self).__name__} features ({self.extra_repr()}), got that of others{sizes}; "
            "approximate with the same method, num_features, train_inputs and seed as then, or pickle the model"
        )

    def get_extra_state(self) -> Tensor:
        """The numbers of columns of inputs and features, and the code of :attr:`description`."""
        return torch.tensor([self.input_dim, self.num_features, states.code(self.description)])

    def set_extra_state(self, state: Tensor) -> None:
        """Do nothing: :meth:`prepare_for` has compared the code."""


@contextmanager
def weights_kept_on_error(module: torch.nn.Module) -> Iterator[None]:
    """Restore the weights of all maps inside a module where anything is raised, an interrupt included."""
    maps = [part for part in module.modules() if isinstance(part, RandomWeights)]
    before = [(part, part._own_version, {n: b.clone() for n, b in part.named_buffers(recurse=False)}) for part in maps]
    try:
        yield
    except BaseException:
        for part, version, weights in before:
            part._own_version = version
            for name, weight in weights.items():
                getattr(part, name).copy_(weight)
        raise
