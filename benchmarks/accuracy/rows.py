"""The rows that all methods are given, their scores, and the seconds that they take. NumPy alone."""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

KERNELS = {
    "kin8nm": "rbf",
    "powerplant": "matern32",
    "protein": "matern32",
    "concrete": "matern32",
    "energy": "matern32",
    "letter": "matern32",
    "mnist": "polynomial",
}
CLASSES = {"letter": 26, "mnist": 10}
ADDED = 1e-12


class Rows(NamedTuple):
    """Training and test rows of a set, and the kernel that all Gaussian processes take."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    kernel: str
    num_classes: int


Predictions = tuple[np.ndarray, np.ndarray] | np.ndarray
"""Mean and variance of new observations, (N,) or (N, T); or probabilities of classes, (N, C)."""
Method = Callable[[Rows], Iterator[tuple[str, Callable[[], Predictions]]]]
"""Fits, and yields a label and how to predict; once, or again and again as training goes on."""


def load(name: str, data_dir: Path, seed: int) -> Rows:
    """A random tenth of the rows to test on, standardized by the others; of MNIST its own split, rows of norm one."""
    kernel, num_classes = KERNELS[name], CLASSES.get(name, 0)
    with np.load(data_dir / f"{name}.npz") as archive:
        if name == "mnist":
            x, test_x = (archive[key].reshape(-1, 784).astype(float) for key in ("x_train", "x_test"))
            x, test_x = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (x, test_x))
            return Rows(x, archive["y_train"].astype(int), test_x, archive["y_test"].astype(int), kernel, num_classes)
        x, y = archive["x"].astype(float), archive["y"].astype(int if num_classes else float)
    order = np.random.RandomState(seed).permutation(len(x))
    train, test = np.split(order, [int(0.9 * len(x))])
    x = (x - x[train].mean(0)) / x[train].std(0)
    if not num_classes:
        y = (y - y[train].mean(0)) / y[train].std(0)
    return Rows(x[train], y[train], x[test], y[test], kernel, num_classes)


def subset(rows: Rows, count: int) -> Rows:
    """So many random training rows."""
    chosen = np.random.RandomState(0).permutation(len(rows.x))[:count]
    return rows._replace(x=rows.x[chosen], y=rows.y[chosen])


def per_output(method: Method) -> Method:
    """A method of one output as a method of several, one model each."""

    def fitted(rows: Rows) -> Iterator[tuple[str, Callable[[], Predictions]]]:
        if rows.y.ndim == 1:
            yield from method(rows)
            return
        outputs = [method(rows._replace(y=rows.y[:, t])) for t in range(rows.y.shape[1])]
        for points in zip(*outputs, strict=True):
            yield (
                points[0][0],
                lambda points=points: tuple(
                    np.stack(parts, axis=1) for parts in zip(*(predict() for _, predict in points), strict=True)
                ),
            )

    return fitted


class OverLimitError(Exception):
    """The process has used the seconds that it was given."""


def measured(method: Method, rows: Rows, limit: int) -> dict[str, Any]:
    """Scores and processor seconds, of the fit so far and its prediction, under the label of each prediction.

    After a limit of processor seconds it returns what it has; where that is nothing, "status" says so.
    """
    signal.signal(signal.SIGXCPU, _stop)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
    points: dict[str, Any] = {}
    spent, began = 0.0, time.process_time()
    try:
        for label, predict in method(rows):
            fitted = time.process_time()
            predictions = predict()
            predicted = time.process_time()
            spent += fitted - began
            points[label] = {"seconds": spent + predicted - fitted, **scores(rows, predictions)}
            began = time.process_time()
    except OverLimitError:
        return points or {"status": f"over {limit} s"}
    return points


def _stop(*_: Any) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    raise OverLimitError


def scores(rows: Rows, predictions: Predictions) -> dict[str, float]:
    """Of regression RMSE and NLPD, means over outputs; of classification error rate and mean negative log likelihood.

    They are keyed "error" and "nlpd" in both.
    """
    if rows.num_classes:
        chosen = predictions[np.arange(len(rows.test_y)), rows.test_y]
        error = float((predictions.argmax(-1) != rows.test_y).mean())
        return {"error": error, "nlpd": float(-np.log(chosen + ADDED).mean())}
    mean, variance = predictions
    squares = (rows.test_y - mean) ** 2
    density = 0.5 * (np.log(2.0 * np.pi * variance) + squares / variance)
    return {"error": float(np.sqrt(squares.mean())), "nlpd": float(density.mean())}
