"""Packages that are imported where they are used, as they are not there in every installation."""

from __future__ import annotations

import importlib
from types import ModuleType


def require(module: str, package: str, purpose: str, extra: str = "study") -> ModuleType:
    """Import a module of an extra.

    :param module: the module, such as "sklearn.datasets".
    :param package: the package that it is in, such as "scikit-learn".
    :param purpose: what it is for.
    :param extra: the extra that has the package.
    :returns: the module.
    :raises ImportError: without the package; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ImportError(
            f"expected {package} for {purpose}, got none; install the extra {extra}, from a checkout by "
            f"pip install '.[{extra}]'"
        ) from None
