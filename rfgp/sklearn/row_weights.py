"""Weights of rows, as scikit-learn has them: one per row, or one per class."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array
from sklearn.utils.class_weight import compute_sample_weight

from .arrays import Floats, check_masks


def row_weights(sample_weight: Any, inputs: Floats) -> Floats | None:
    """Weights (N,), zero or positive, or None for ones."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, numbers.Real):
        sample_weight = np.full(len(inputs), sample_weight)
    check_masks(sample_weight, "sample_weight")
    weights = check_array(sample_weight, dtype=np.float64, ensure_2d=False, input_name="sample_weight")
    if weights.shape != (len(inputs),):
        raise ValueError(
            f"expected sample_weight of shape {(len(inputs),)}, got {weights.shape}; pass a weight for every row"
        )
    if (weights < 0).any():
        raise ValueError(f"expected weights of at least 0 in sample_weight, got {weights.min():g}; correct them")
    if not weights.any():
        raise ValueError("expected some weights above zero in sample_weight, got zeros only; weigh the rows")
    return weights


def with_class_weights(weights: Floats | None, class_weight: Any, labels: NDArray[Any]) -> Floats | None:
    """Weights (N,) times those of the classes: "balanced", or a dict from labels to weights."""
    if class_weight is None:
        return weights
    if isinstance(class_weight, str) and class_weight != "balanced":
        raise ValueError(f'expected "balanced", a dict or None for class_weight, got {class_weight!r}; choose one')
    by_class: Floats = compute_sample_weight(class_weight, labels)
    if not (by_class >= 0).all():
        raise ValueError(f"expected weights of at least 0 in class_weight, got {class_weight!r}; correct them")
    return by_class if weights is None else weights * by_class


def present(weights: Floats | None, *columns: NDArray[Any]) -> tuple[Any, ...]:
    """The rows whose weight is not zero: their weights, and each of the columns."""
    if weights is None or weights.all():
        return weights, *columns
    is_in = weights > 0
    return weights[is_in], *(column[is_in] for column in columns)
