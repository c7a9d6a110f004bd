"""Checks of a state before it is loaded: codes of modules, names and shapes of tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from .gpytorch_names import loads_strict_shapes, persistent_buffers

_BITS = 48  # which float64 holds exactly
_OPTIONAL = ("_constraint.lower_bound", "_constraint.upper_bound")  # GPyTorch does not insist on them


@runtime_checkable
class StatePreparer(Protocol):
    """A module that checks a state, and prepares itself for it, before the state is loaded."""

    def prepare_for(self, state: Mapping[str, Tensor], prefix: str) -> None:
        """Raise a ValueError where a state, whose names begin with ``prefix``, is that of another kind of module."""


@runtime_checkable
class HasRows(Protocol):
    """A model with caches and training data among its attributes, which says what a file of it holds."""

    def saved_attributes(self, with_rows: bool) -> dict[str, Any]:
        """The attributes without caches, and without training data that predictions do not need."""

    @property
    def num_rows_kept(self) -> int:
        """The number of training rows that are kept with the model."""


def code(description: str) -> int:
    """A number that stands for a description, the same in every process."""
    return int.from_bytes(hashlib.sha256(description.encode()).digest()[: _BITS // 8], "big")


def check_mapping(state: Any) -> None:
    """Raise where a state is no mapping, such as the path of a file."""
    if not isinstance(state, Mapping):
        raise ValueError(f"expected the mapping that state_dict() gives, got {type(state).__name__}; pass that")


def check(module: torch.nn.Module, state: Mapping[str, Any], prefix: str = "", strict: bool = False) -> None:
    """Raise a ValueError where a state does not fit a module; load no tensor."""
    check_mapping(state)
    values = {name: value for name, value in state.items() if name.startswith(prefix)}
    for name, value in values.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"expected a tensor for {name} in the state, got {type(value).__name__}; save it again")
    for name, part in list(_parts(module, prefix)):
        if isinstance(part, StatePreparer):
            part.prepare_for(values, name)
    needed: set[str] = set()
    possible: set[str] = set()
    for name, part in _parts(module, prefix):
        shapes = {name + key: tuple(value.shape) for key, value in _tensors(part)}
        is_flexible = not loads_strict_shapes(part)
        for key, shape in shapes.items():
            if key in values and not is_flexible and tuple(values[key].shape) not in (shape, shape or (1,)):
                raise ValueError(
                    f"expected the state of this model, with {key} of shape {shape}, got {tuple(values[key].shape)}; "
                    "load it into a model that is made as the saved one was"
                )
        if type(part).get_extra_state is not torch.nn.Module.get_extra_state:
            shapes[f"{name}_extra_state"] = ()
        needed |= {key for key in shapes if not key.endswith(_OPTIONAL)}
        possible |= shapes.keys()
    missing, unknown = sorted(needed - values.keys()), sorted(values.keys() - possible)
    if strict and (missing or unknown):
        raise ValueError(
            f"expected the state of this model, got one without {_some(missing)} and with {_some(unknown)} beside what "
            "belongs to it; load it into a model that is made as the saved one was"
        )


def _parts(module: torch.nn.Module, prefix: str) -> Iterator[tuple[str, torch.nn.Module]]:
    """All modules inside a module by the prefixes of their tensors, shared ones every time."""
    for name, part in module.named_modules(remove_duplicate=False):
        yield f"{prefix}{name}." if name else prefix, part


def _tensors(part: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """What a module itself contributes to a state."""
    yield from part.named_parameters(recurse=False)
    yield from persistent_buffers(part).items()


def _some(names: list[str]) -> str:
    return (", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")) or "nothing"
