"""The classes and functions that a file may name; whatever it says, no others are looked up."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import torch

_ROOMS = ("approximation", "averaging", "features", "functionals", "inference", "kernels", "likelihoods", "models")
_FOLDERS = ("linalg.nearest", "sklearn.frames", "sklearn.near_predictions", "study.tables")
_CLASSES = (
    *(f"rfgp.{name}" for name in (*_ROOMS, *_FOLDERS)),
    "gpytorch",
    "torch.nn",
    "torch.distributions",
)
_FUNCTIONS = ("rfgp.inference.noise", "gpytorch.utils.transforms")
_OF_TORCH: dict[str, Callable[..., Any]] = {
    f"{module.__name__}:{name}": getattr(module, name)
    for module, names in (
        (torch, ("exp", "expm1", "log", "log1p", "sigmoid", "square", "sqrt", "tanh")),
        (torch.nn.functional, ("softplus", "elu", "relu")),
    )
    for name in names
}
"""Functions of PyTorch, which constraints transform parameters by."""


def name_of(named: Any) -> str:
    """The name of a class or a function."""
    return f"{named.__module__}:{named.__qualname__}"


def is_known_class(kind: type) -> bool:
    """Whether a class is of one of the packages whose classes are looked up."""
    return _is_inside(kind.__module__, _CLASSES)


def function_name(function: Any) -> str | None:
    """The name of a function that is looked up; None for others."""
    for name, of_torch in _OF_TORCH.items():
        if function is of_torch:
            return name
    is_known = isinstance(function, FunctionType) and _is_inside(function.__module__, _FUNCTIONS)
    return name_of(function) if is_known and "<" not in function.__qualname__ else None


def find_class(name: str, classes: Mapping[str, type]) -> type:
    """The class of a name."""
    _, _, qualname = name.partition(":")
    if qualname in classes:
        return classes[qualname]
    kind = _find(name, _CLASSES)
    if not isinstance(kind, type):
        raise ValueError(
            f"expected classes of rfgp, GPyTorch and PyTorch in the file, got {name}; pass classes=[{qualname}] if it "
            "is yours, or load with the version of rfgp that the file names"
        )
    return kind


def find_function(name: str) -> Callable[..., Any]:
    """The function of a name."""
    function = _OF_TORCH.get(name, _find(name, _FUNCTIONS))
    if not callable(function) or isinstance(function, type):
        raise ValueError(
            f"expected functions that rfgp.save names, got {name}; load with the version of rfgp that the file names"
        )
    return function


def _find(name: str, packages: tuple[str, ...]) -> Any:
    """What has this name in one of some packages, and was defined there; None where there is no such thing."""
    module, _, qualname = name.partition(":")
    if not _is_inside(module, packages):
        return None
    try:
        result: Any = importlib.import_module(module)
        for part in qualname.split("."):
            result = vars(result)[part]
    except (ImportError, KeyError, TypeError):
        return None
    is_defined = isinstance(result, type | FunctionType) and name_of(result) == name
    return result if is_defined else None


def _is_inside(module: str | None, packages: tuple[str, ...]) -> bool:
    return module is not None and any(module == package or module.startswith(f"{package}.") for package in packages)
