"""The registry of families by the classes of kernels and of maps, and what it says about a kernel in words."""

from __future__ import annotations

import re
from typing import Any, TypeGuard

import torch
from gpytorch.kernels import Kernel

from .._support.gpytorch_names import modules_of
from ..features import FeatureMap

FAMILIES: dict[type[Kernel], Any] = {}
"""The families by the kernels that :func:`rfgp.approximation.approximates` has registered them for."""
OF_MAPS: dict[type[torch.nn.Module], Any] = {}
"""The families of whole kernels, by the class of their maps."""


class HasFeatures:
    """The mark of kernels with features of their own."""


def is_approximated(kernel: object) -> TypeGuard[Any]:
    """Whether a kernel has features of its own: whether :func:`rfgp.approximate` has made it."""
    return isinstance(kernel, HasFeatures)


def without_features(kernel: Any) -> Any:
    """The exact kernel; where parts have features of their own, a copy with the very parameters around exact parts."""
    if is_approximated(kernel):
        return kernel.exact_kernel
    if not any(is_approximated(part) for part in kernel.modules()):
        return kernel
    parts = {name: part if part is None else without_features(part) for name, part in modules_of(kernel).items()}
    twin = object.__new__(type(kernel))
    vars(twin).update({**vars(kernel), "_modules": parts})
    return twin


def settings(kernel: Kernel) -> dict[str, Any]:
    """The settings of a kernel that are neither tensors nor parts, by name, as its class or its family lists them."""
    of_family = next((FAMILIES[base].settings for base in type(kernel).__mro__ if base in FAMILIES), ())
    names = (*of_family, *getattr(type(kernel), "settings", ()))
    return {name: vars(kernel)[name] for name in names if name in vars(kernel)}


def described(kernel: Kernel) -> str:
    """The classes of a kernel and of its parts with their settings, which a loaded state has to match."""
    kernels = [(n, part) for n, part in kernel.named_modules(remove_duplicate=False) if isinstance(part, Kernel)]
    return "; ".join(f"{name} {_class_and_settings(part)}" for name, part in kernels).strip()


def described_maps(maps: torch.nn.Module) -> str:
    """The classes of maps, but for feature maps, whose states say what they are."""
    if isinstance(maps, FeatureMap):
        return ""
    inner = ", ".join(text for part in maps.children() if (text := described_maps(part)))
    complex_form = "complex " if getattr(maps, "is_complex", False) else ""
    return f"{complex_form}{type(maps).__name__}({inner})"


def _class_and_settings(kernel: Kernel) -> str:
    texts = [f"{name}={float(v) if isinstance(v, int) else v!r}" for name, v in settings(kernel).items()]
    return re.sub(r" at 0x[0-9a-f]+", "", f"{type(kernel).__name__}({', '.join(texts)})")
