"""The rows that all methods are given, their scores, and the seconds that they take. NumPy and SciPy alone."""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from .generated import GENERATED

CLASSES = {"letter": 26, "mnist": 10, "fashion_mnist": 10, "imbalanced": 3}
"""The numbers of classes."""
IMAGES = ("mnist", "fashion_mnist")
SETS = (
    *("yacht", "energy", "concrete", "airfoil", "kin8nm", "powerplant", "rf1", "pol", "kin40k", "protein"),
    *("keggundirected", "letter", "mnist", "fashion_mnist"),
)
"""In the order of their rows: numbers, then classes."""
FRESH = ("gas", "skillcraft", "pumadyn32nm")
"""Tables of UCI with the field's folds by which no default was chosen."""
KERNELS = {"kin8nm": "rbf"}
"""The kernels that Gaussian processes take where they are given one; else Matern-3/2."""
ADDED = 1e-12
GRACE = 10
"""Seconds after its limit at which a process is ended that does not see it, as native code does not."""


class Rows(NamedTuple):
    """Training and test rows of a set, and the kernel that all Gaussian processes take."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    kernel: str
    num_classes: int


class Predicted(NamedTuple):
    """Means of new observations, (N,) or (N, T), log densities of observations, and the ends of 95 % intervals."""

    mean: np.ndarray
    log_density: Callable[[np.ndarray], np.ndarray]
    interval: Callable[[], tuple[np.ndarray, np.ndarray]]


Predictions = Predicted | tuple[np.ndarray, np.ndarray] | np.ndarray
"""Distributions, means and variances of normal ones, (N,) or (N, T), or probabilities of classes, (N, C)."""
Method = Callable[[Rows], Iterator[tuple[str, Callable[[], Predictions]]]]
"""Fits, and yields a label and how to predict; once, or again and again as training goes on."""


def load(name: str, data_dir: Path | None, seed: int, count: int | None = None) -> Rows:
    """A random tenth of the rows to test on, or the fold of the set, standardized by the others; of images raw pixels.

    :param count: the largest number of training rows, and of test rows; default: all.
    """
    num_classes = CLASSES.get(name, 0)
    x, y, test = _table(name, data_dir, seed)
    order = np.random.RandomState(seed).permutation(len(x))
    is_test = np.isin(order, order[int(0.9 * len(x)) :] if test is None else test)
    train, test = order[~is_test][:count], order[is_test][:count]
    kind = int if num_classes else float
    y = y.astype(kind)
    if name in IMAGES:
        return Rows(x[train] / 255.0, y[train], x[test] / 255.0, y[test], "rbf", num_classes)
    mean, scale = x[train].mean(0), x[train].std(0)
    x = (x - mean) / np.where(scale > 0.0, scale, 1.0)
    if not num_classes:
        y = (y - np.nanmean(y[train], 0)) / np.nanstd(y[train], 0)
    kernel = KERNELS.get(name, "matern32")
    return Rows(x[train], y[train], x[test], y[test], kernel, num_classes)


def _table(name: str, data_dir: Path | None, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Inputs, targets, and the numbers of the test rows where the set says which they are."""
    if name in GENERATED:
        return *GENERATED[name](np.random.default_rng(seed)), None
    if data_dir is None:
        raise ValueError(f"expected a directory with {name}.npz, got none; pass --data-dir")
    path = data_dir / f"{name}.npz"
    with np.load(path if path.exists() else data_dir / "uci" / path.name) as archive:
        data = dict(archive)
    if name == "mnist":
        x = np.concatenate([data["x_train"], data["x_test"]]).reshape(-1, 784)
        return x, np.concatenate([data["y_train"], data["y_test"]]), np.arange(len(data["x_train"]), len(x))
    if name == "fashion_mnist":
        return data["x"].reshape(-1, 784), data["y"], np.random.RandomState(seed).permutation(len(data["x"]))[:10_000]
    is_test = data["fold"] == seed - 1 if "fold" in data else None
    return data["x"].astype(float), data["y"], None if is_test is None else np.flatnonzero(is_test)


def subset(rows: Rows, count: int) -> Rows:
    """So many random training rows."""
    chosen = np.random.RandomState(0).permutation(len(rows.x))[:count]
    return rows._replace(x=rows.x[chosen], y=rows.y[chosen])


def all_classes(probabilities: np.ndarray, classes: np.ndarray, count: int) -> np.ndarray:
    """Probabilities of all classes, from those of the classes that the training rows have."""
    result = np.zeros((len(probabilities), count))
    result[:, classes] = probabilities
    return result


def per_output(method: Method) -> Method:
    """A method of one output as a method of several, one model each, of the rows whose target is known."""

    def fitted(rows: Rows) -> Iterator[tuple[str, Callable[[], Predictions]]]:
        if rows.y.ndim == 1:
            yield from method(rows)
            return
        known = ~np.isnan(rows.y)
        outputs = [
            method(rows._replace(x=rows.x[known[:, t]], y=rows.y[known[:, t], t])) for t in range(rows.y.shape[1])
        ]
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
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + GRACE))
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
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))
    raise OverLimitError


def scores(rows: Rows, predictions: Predictions) -> dict[str, Any]:
    """Of numbers RMSE and NLPD, means over outputs; of classes error rate and log loss.

    They are keyed "error" and "nlpd" in both; "coverage" is that of 95 % intervals of numbers, and "by_output" has the
    RMSE of several outputs.
    """
    if rows.num_classes:
        chosen = predictions[np.arange(len(rows.test_y)), rows.test_y]
        error = float((predictions.argmax(-1) != rows.test_y).mean())
        return {"error": error, "nlpd": float(-np.log(chosen + ADDED).mean())}
    predicted = predictions if isinstance(predictions, Predicted) else _normal(*predictions)
    by_output = np.sqrt(np.nanmean((rows.test_y - predicted.mean) ** 2, 0))
    lower, upper = predicted.interval()
    inside = np.where(np.isnan(rows.test_y), np.nan, (lower <= rows.test_y) & (rows.test_y <= upper))
    found = {
        "error": float(by_output.mean()),
        "nlpd": float(-np.nanmean(predicted.log_density(rows.test_y), 0).mean()),
        "coverage": float(np.nanmean(inside)),
    }
    return found | ({"by_output": by_output.tolist()} if by_output.ndim else {})


def _normal(mean: np.ndarray, variance: np.ndarray) -> Predicted:
    deviation = np.sqrt(variance)
    return Predicted(
        mean,
        lambda y: scipy.stats.norm.logpdf(y, mean, deviation),
        lambda: scipy.stats.norm.interval(0.95, mean, deviation),
    )
