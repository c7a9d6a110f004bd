"""The registry of families by kernel class, and what it says about a kernel in words."""

from __future__ import annotations

import re
from typing import Any

from gpytorch.kernels import Kernel

from .width_warning import warn_of_dense

FAMILIES: dict[type[Kernel], Any] = {}
"""The families by the kernels that :func:`rfgp.approximation.approximates` has registered them for."""


def settings(kernel: Kernel) -> dict[str, Any]:
    """The settings of a kernel that are neither tensors nor parts, by name, as its class or its family lists them."""
    of_family = next((FAMILIES[base].settings for base in type(kernel).__mro__ if base in FAMILIES), ())
    names = (*of_family, *getattr(type(kernel), "settings", ()))
    return {name: vars(kernel)[name] for name in names if name in vars(kernel)}


def described(kernel: Kernel) -> str:
    """The classes of a kernel and of its parts with their settings, which a loaded state has to match."""
    kernels = [(n, part) for n, part in kernel.named_modules(remove_duplicate=False) if isinstance(part, Kernel)]
    return "; ".join(f"{name} {_class_and_settings(part)}" for name, part in kernels).strip()


def _class_and_settings(kernel: Kernel) -> str:
    texts = [f"{name}={float(v) if isinstance(v, int) else v!r}" for name, v in settings(kernel).items()]
    return re.sub(r" at 0x[0-9a-f]+", "", f"{type(kernel).__name__}({', '.join(texts)})")


def composed(kernel: Kernel, other: Kernel) -> Kernel:
    """A sum or product that GPyTorch has made, with features where all parts have some."""
    family = FAMILIES[type(kernel)](kernel)
    if family.has_features:
        features: Kernel = family.with_features()
        return features
    warn_of_dense(
        kernel,
        f"{type(other).__name__} has no features, so that the sum or product with it is dense, at O(N^3); wrap it with "
        "rfgp.approximate first",
        stacklevel=3,
    )
    return kernel
