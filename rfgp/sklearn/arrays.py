"""Arrays and seeds, as scikit-learn has them."""

from __future__ import annotations

import contextlib
import datetime
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from torch import Tensor

from .._support import checks
from .._support.data_frames import as_pandas

Floats = NDArray[np.float64]

_TIMES = (
    ("dates", "M", (datetime.date, np.datetime64)),
    ("durations", "m", (datetime.timedelta, np.timedelta64)),
)
"""What targets may be that are no numbers: in words, as a kind of NumPy, and as types of cells."""


@contextlib.contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """A fit that leaves the attributes of an estimator as they were where it fails.

    What draws from PyTorch's default generators has a seed of its own, and leaves these as they were.
    """
    before = estimator.__dict__.copy()
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            torch.manual_seed(0)
            yield
    except BaseException:
        estimator.__dict__ = before
        raise


def validated(estimator: Any, X: Any, y: Any = "no_validation", **options: Any) -> Any:
    """What scikit-learn's ``validate_data`` returns, also of tensors that require gradients."""
    X = _array(X, "X")
    check_names(X)
    return validate_data(estimator, X, _array(y, "y"), **options)


def _array(values: Any, name: str) -> Any:
    check_masks(values, name)
    return checks.tensor(values, name).detach() if isinstance(values, Tensor) else as_pandas(values, name)


def check_masks(values: Any, name: str) -> None:
    """Raise a ValueError where a masked array hides values, which others would read."""
    count = int(np.ma.count_masked(values)) if isinstance(values, np.ma.MaskedArray) else 0
    if count:
        raise ValueError(
            f"expected values of {name} without a mask, got {count} that are masked; fill them, as with "
            f"{name}.filled(numpy.nan) where they are missing"
        )


def joined(first: Any, second: Any) -> Any:
    """The rows of two tables or arrays, one after the other."""
    first, second = _array(first, "X"), _array(second, "X")
    if hasattr(first, "iloc") and hasattr(second, "iloc"):
        import pandas

        return pandas.concat([first, second], ignore_index=True)
    return np.concatenate([np.asarray(first), np.asarray(second)])


def check_names(table: Any) -> None:
    """Raise a ValueError where several columns of a data frame have one name."""
    if not (hasattr(table, "dtypes") and hasattr(table, "columns")):
        return
    repeated = [name for name, count in Counter(map(str, table.columns)).items() if count > 1]
    if repeated:
        named = ", ".join(map(repr, repeated))
        raise ValueError(f"expected different names of columns, got several named {named}; rename them")


def check_numbers(y: Any) -> None:
    """Raise a ValueError where targets (N,) or (N, T) have words, dates, durations or a name of several columns."""
    y = _array(y, "y")
    check_names(y)
    values = np.asarray(y)
    for what, kind, types in _TIMES:
        is_other = values.dtype.kind == "O" and any(isinstance(value, types) for value in values.flat)
        if values.dtype.kind == kind or is_other:
            raise ValueError(f"expected numbers for y, got {what}; convert them to numbers in a unit, such as days")
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
