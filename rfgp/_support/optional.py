"""Packages that are imported where they are used, as they are not there in every installation."""

from __future__ import annotations

import importlib
from types import ModuleType


def require(module: str, package: str, purpose: str, extra: str = "study") -> ModuleType:
    """Import a module of an extra."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ImportError(
            f"expected {package} for {purpose}, got none; install the extra {extra}, from a checkout by "
            f"pip install '.[{extra}]'"
        ) from None
