"""Targets as numbers or as class numbers, and the task that they make."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .base import Task

MOST_CLASSES = 20
"""Integers with more different values are classes only where the task says so."""
_ROWS_PER_CLASS = 5


def typed_targets(
    values: NDArray[np.generic], task: Task | None, what: str
) -> tuple[NDArray[np.generic], Task, tuple[str, ...]]:
    """Targets as floats or as class numbers, the task they make, and the names of the classes in their order.

    :param values: floats, integers, booleans or strings, (N,).
    """
    kind = values.dtype.kind
    if kind not in "fiubUS":
        raise ValueError(f"expected numbers or strings in {what}, got {values.dtype}; convert it")
    if kind == "f" and not np.isfinite(values.astype(np.float64)).all():
        bad = int((~np.isfinite(values.astype(np.float64))).sum())
        raise ValueError(f"expected finite numbers in {what}, got {bad} others; remove them")
    if task == "regression" or (task is None and kind == "f"):
        if kind in "US":
            raise ValueError(
                f"expected numbers in {what} for regression, got {str(values[0])!r}; choose classification"
            )
        return values.astype(np.float64), "regression", ()
    if kind == "f" and not np.array_equal(values, np.round(values.astype(np.float64))):
        raise ValueError(f"expected class labels in {what}, got fractions; choose regression")
    classes, codes = np.unique(values, return_inverse=True)
    is_many = kind in "iu" and len(classes) > MOST_CLASSES
    if task is None and (is_many or len(classes) * _ROWS_PER_CLASS > len(values)):
        numbers = "choose regression, or classification, by the name of the task (--task)"
        raise ValueError(
            f"expected class labels in {what}, with at least {_ROWS_PER_CLASS} rows per class"
            + (f", and at most {MOST_CLASSES} classes of integers" if kind in "iu" else "")
            + f", got {len(classes):,} different values in {len(values):,} rows; "
            + (numbers if kind in "iu" else "take another target, or name the task (--task classification)")
        )
    if kind == "f":
        classes = classes.astype(np.int64)
    return codes, "classification", tuple(map(str, classes.tolist()))
