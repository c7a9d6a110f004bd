"""Arrays and seeds, as scikit-learn has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from torch import Tensor

from .._support import checks

Floats = NDArray[np.float64]


def validated(estimator: Any, X: Any, y: Any = "no_validation", **options: Any) -> Any:
    """What scikit-learn's ``validate_data`` returns, also of tensors that require gradients."""
    return validate_data(estimator, _array(X, "X"), _array(y, "y"), **options)


def _array(values: Any, name: str) -> Any:
    return checks.tensor(values, name).detach() if isinstance(values, Tensor) else values


def check_numbers(y: Any) -> None:
    """Raise a ValueError where targets (N,) or (N, T) have words among them."""
    values = np.asarray(_array(y, "y"))
    words = (value for value in values.flat if isinstance(value, str)) if values.dtype.kind in "OU" else ()
    for word in words:
        try:
            float(word)
        except ValueError:
            raise ValueError(
                f"expected numbers for y, got {str(word)!r}; use RandomFeatureGPClassifier for classes, or convert y"
            ) from None


def as_tensor(values: Floats | None) -> Tensor | None:
    """Values as a tensor, or None."""
    return None if values is None else torch.from_numpy(values)


def drawn_seed(random_state: Any) -> int:
    """A seed for PyTorch, from what scikit-learn takes as ``random_state``: a seed, a RandomState, or None."""
    return int(check_random_state(random_state).randint(2**31 - 1))
