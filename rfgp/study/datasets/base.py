"""What every data set is, and how its rows are split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..._support import checks
from ...likelihoods.counts import checked_counts, checked_exposure

Task = Literal["classification", "regression", "counts"]
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
    :param y_train: training targets (N,), or (N, T): float64 for regression, class numbers (int64) for classification,
        counts (N,), float64.
    :param x_test: test inputs (M, d).
    :param y_test: test targets (M,), or (M, T).
    :param task: "classification", "regression" or "counts".
    :param num_classes: the number of classes; None for others.
    :param provenance: where the data come from.
    :param licence: the terms of use.
    :param scaling: "standardize" for columns in units of their own, "unit" (rows of unit norm) for pixels and counts,
        "none".
    :param outputs: the names of the outputs that are in the targets, where they have names.
    :param exposure_train: over what training rows have collected their counts, (N,), positive; default: ones.
    :param exposure_test: the same of test rows, (M,).
    :raises ValueError: where values are not finite, but for NaN in some of several targets, where shapes disagree, or
        where the training targets are all the same.

    >>> import rfgp
    >>> diabetes = rfgp.study.datasets.load("diabetes")
    >>> diabetes.task, tuple(diabetes.x_train.shape), diabetes.scaling
    ('regression', (354, 10), 'standardize')
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
    outputs: tuple[str, ...] = ()
    exposure_train: Tensor | None = None
    exposure_test: Tensor | None = None

    def __post_init__(self) -> None:
        checks.instance("name", self.name, str, "a name", 'such as "houses"')
        checks.choice("task", self.task, get_args(Task))
        checks.choice("scaling", self.scaling, get_args(Scaling))
        if not isinstance(self.outputs, tuple) or not all(isinstance(name, str) for name in self.outputs):
            raise ValueError(
                f'expected a tuple of names for outputs, got {self.outputs!r}; such as ("height", "width")'
            )
        if self.task != "classification" and self.num_classes is not None:
            raise ValueError(f"expected no num_classes for {self.task}, got {self.num_classes!r}; leave it None")
        if self.task == "classification":
            object.__setattr__(self, "num_classes", checks.positive_integer("num_classes", self.num_classes))
        for part in ("train", "test"):
            checks.inputs(getattr(self, f"x_{part}"), name=f"x_{part}")
            checks.tensor(getattr(self, f"y_{part}"), f"y_{part}")
        for x, y, part in ((self.x_train, self.y_train, "train"), (self.x_test, self.y_test, "test")):
            checks.finite(checks.inputs(x, self.x_train.shape[-1], f"x_{part}"), f"x_{part}")
            for column in y.unbind(-1) if y.dim() == 2 else (y,):
                if self.num_classes is None:
                    there = ~column.isnan() if y.dim() == 2 and y.shape[1] > 1 else slice(None)
                    checks.targets(column[there], x[there], f"y_{part}")
                else:
                    checks.labels(column, x, self.num_classes, f"y_{part}")
        for part in ("train", "test"):
            self._check_counts(getattr(self, f"y_{part}"), f"y_{part}", f"exposure_{part}")
        if self.outputs and len(self.outputs) != self.num_outputs:
            raise ValueError(
                f"expected {self.num_outputs} names of outputs, one per column of the targets, got "
                f"{len(self.outputs)}; name them all, or none"
            )
        if self.y_test.shape[1:] != self.y_train.shape[1:]:
            raise ValueError(
                f"expected as many outputs in y_test as in y_train, {self.num_outputs}, got a shape of "
                f"{tuple(self.y_test.shape)}; take the same columns"
            )
        for column in self.y_train.reshape(len(self.y_train), -1).unbind(-1):
            values = column[~column.isnan()]
            if bool((values == values[:1]).all()):
                value = f"{values[0].item():g} in all of them" if len(values) else "none"
                raise ValueError(
                    f"expected targets of {self.name} that vary over the training rows, got {value}; choose another "
                    "target"
                )

    def _check_counts(self, y: Tensor, name: str, exposure_name: str) -> None:
        """Check counts and their exposures, which are ones by default."""
        exposure = getattr(self, exposure_name)
        if self.task != "counts":
            if exposure is not None:
                raise ValueError(f"expected no {exposure_name} for {self.task}, got some; leave it out")
            return
        if y.dim() > 1:
            raise ValueError(f"expected counts (N,) in {name}, got a shape of {tuple(y.shape)}; take one column")
        checked_counts(y, name, 'task="regression"')
        values = torch.ones_like(y) if exposure is None else checked_exposure(exposure)
        if values.shape != y.shape:
            raise ValueError(
                f"expected {exposure_name} of the shape of {name}, {tuple(y.shape)}, got {tuple(values.shape)}; pass "
                "one for each row"
            )
        object.__setattr__(self, exposure_name, values)

    @property
    def num_outputs(self) -> int:
        """The number of outputs T: 1 for targets (N,)."""
        return self.y_train.shape[1] if self.y_train.dim() == 2 else 1


def split(name: str, x: Any, y: Any, test_share: float = TEST_SHARE, seed: int = 0) -> Parts:
    """Training and test parts: the same random rows are kept for testing, a fifth by default."""
    if len(x) != len(y) or len(x) < _MIN_ROWS:
        raise ValueError(
            f"expected inputs and targets of {name} with one number of rows, at least {_MIN_ROWS}, got {len(x)} and "
            f"{len(y)}; add rows"
        )
    order = np.random.default_rng(seed).permutation(len(x))
    test, train = np.split(order, [round(test_share * len(x))])
    return x[train], y[train], x[test], y[test]


def from_arrays(
    name: str,
    parts: Parts,
    task: Task,
    *,
    provenance: str,
    licence: str,
    scaling: Scaling = "standardize",
    outputs: tuple[str, ...] = (),
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
        outputs,
    )


MOST_CLASSES = 20
"""Integers with more different values are classes only where the task says so."""
_MANY_VALUES = 100
"""More different integers than these are numbers, not labels."""
_ROWS_PER_CLASS = 5


def typed_targets(
    values: NDArray[np.generic], task: Task | None, what: str
) -> tuple[NDArray[np.generic], Task, tuple[str, ...]]:
    """Targets (N,) as floats or as class numbers, the task they make, and the names of the classes in their order."""
    kind = values.dtype.kind
    if kind not in "fiubUS":
        raise ValueError(f"expected numbers or strings in {what}, got {values.dtype}; convert it")
    if kind == "f" and not np.isfinite(values.astype(np.float64)).all():
        bad = int((~np.isfinite(values.astype(np.float64))).sum())
        raise ValueError(f"expected finite numbers in {what}, got {bad} others; remove them")
    if task == "counts":
        if kind in "US":
            raise ValueError(f"expected counts in {what}, got {str(values[0])!r}; choose classification")
        checked_counts(values.astype(np.float64), what, "regression (--task regression)")
        return values.astype(np.float64), "counts", ()
    is_number = kind == "f" or (kind in "iu" and len(np.unique(values)) > _MANY_VALUES)
    if task == "regression" or (task is None and is_number):
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
        if len(values) < _MIN_ROWS:
            raise ValueError(f"expected at least {_MIN_ROWS} rows for {what}, got {len(values)}; add rows")
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
