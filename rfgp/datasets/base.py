"""What every data set is, and how its rows are split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from .. import _checks

Task = Literal["classification", "regression"]
Scaling = Literal["standardize", "unit", "none"]

TEST_SHARE = 0.2
_MIN_ROWS = 10

Parts = tuple[Any, Any, Any, Any]
"""The arrays x_train, y_train, x_test and y_test."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows to train on and rows to test on, without any scaling.

    :param name: a short name.
    :param x_train: training inputs (N, d), float64.
    :param y_train: training targets (N,): float64 for regression, class numbers (int64) for classification.
    :param x_test: test inputs (M, d).
    :param y_test: test targets (M,).
    :param task: "classification" or "regression".
    :param num_classes: the number of classes, None for regression.
    :param provenance: where the data come from.
    :param licence: the terms of use.
    :param scaling: the scaling that suits the inputs: "standardize" for columns in units of their own, "unit" (rows of
        unit norm) for pixels and counts, "none".
    :raises ValueError: where values are not finite, shapes disagree, or the training targets are all the same.
    """

    name: str
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    task: Task
    num_classes: int | None
    provenance: str
    licence: str
    scaling: Scaling = "standardize"

    def __post_init__(self) -> None:
        for x, y, part in ((self.x_train, self.y_train, "train"), (self.x_test, self.y_test, "test")):
            _checks.finite(_checks.inputs(x, self.x_train.shape[-1], f"x_{part}"), f"x_{part}")
            if self.num_classes is None:
                _checks.targets(y, x, f"y_{part}")
            else:
                _checks.labels(y, x, self.num_classes, f"y_{part}")
        if bool((self.y_train == self.y_train[0]).all()):
            raise ValueError(
                f"expected targets of {self.name} that vary over the training rows, got {self.y_train[0].item():g} in "
                "all of them; choose another target"
            )


def split(name: str, x: Any, y: Any) -> Parts:
    """Training and test parts: the same random fifth of the rows (seed 0) is kept for testing.

    :param name: the name of the data set.
    :param x: inputs (N, d).
    :param y: targets (N,).
    :raises ValueError: for fewer than ten rows, or arrays of different lengths.
    """
    if len(x) != len(y) or len(x) < _MIN_ROWS:
        raise ValueError(
            f"expected inputs and targets of {name} with one number of rows, at least {_MIN_ROWS}, got {len(x)} and "
            f"{len(y)}; add rows"
        )
    order = np.random.default_rng(0).permutation(len(x))
    test, train = np.split(order, [round(TEST_SHARE * len(x))])
    return x[train], y[train], x[test], y[test]


def from_arrays(
    name: str, parts: Parts, task: Task, *, provenance: str, licence: str, scaling: Scaling = "standardize"
) -> Dataset:
    """A data set from arrays of numbers, or of class numbers from 0; the arguments are those of :class:`Dataset`."""
    x_train, y_train, x_test, y_test = parts
    is_classes = task == "classification"
    target_dtype = torch.int64 if is_classes else torch.float64
    return Dataset(
        name,
        torch.tensor(x_train, dtype=torch.float64),
        torch.tensor(y_train, dtype=target_dtype),
        torch.tensor(x_test, dtype=torch.float64),
        torch.tensor(y_test, dtype=target_dtype),
        task,
        1 + int(max(y_train.max(), y_test.max())) if is_classes else None,
        provenance,
        licence,
        scaling,
    )
