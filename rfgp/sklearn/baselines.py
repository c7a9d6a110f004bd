"""What predicts a table without a Gaussian process: class frequencies or a constant, and a linear model."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV

from .arrays import Floats

_MOST_ROWS, _MOST_NUMBERS = 10_000, 1e7
"""A linear model takes so many rows at most, and so many that rows times columns times outputs are at most that."""
_SECONDS = 3e-7
"""The seconds that logistic regression takes for a row, a column and a class, about."""
_SMALLEST_VARIANCE = 1e-9
_PENALTIES = tuple(10.0**power for power in range(-3, 6))


class Frequencies:
    """The frequencies of C classes, whatever the inputs."""

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes

    def fit(self, x: Floats, codes: NDArray[Any], weights: Floats | None) -> Self:
        """Learn from the numbers (N,) of classes."""
        totals = np.bincount(codes, weights, minlength=self.num_classes)
        with_one_more = totals + totals.sum() / len(codes)
        self.log_frequencies = np.log(with_one_more / with_one_more.sum())
        return self

    def predict(self, x: Floats, weights: Floats | None = None) -> Floats:
        """Log probabilities, (N, C)."""
        return np.tile(self.log_frequencies, (len(x), 1))


class LogisticClasses(Frequencies):
    """Logistic regression."""

    def fit(self, x: Floats, codes: NDArray[Any], weights: Floats | None) -> Self:
        super().fit(x, codes, weights)
        self.model = None
        x, codes, weights = _some_rows(x, codes, weights, self.num_classes)
        if len(np.unique(codes)) > 1:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                self.model = LogisticRegression().fit(x, codes, sample_weight=weights)
        return self

    def predict(self, x: Floats, weights: Floats | None = None) -> Floats:
        logs = super().predict(x)
        if self.model is not None:
            of_known = self.model.predict_log_proba(x)
            missing = np.setdiff1d(np.arange(self.num_classes), self.model.classes_)
            share = np.log1p(-np.exp(logs[:, missing]).sum(-1, keepdims=True))
            logs[:, self.model.classes_] = of_known + share
        return logs


class Constant:
    """The mean and the variance of every output, whatever the inputs; targets (N, T) may have NaN."""

    def fit(self, x: Floats, targets: Floats, weights: Floats | None) -> Self:
        """Learn from inputs (N, d) and targets."""
        ones = np.ones(len(x)) if weights is None else weights
        moments = [self._fitted(x[~gaps], column[~gaps], ones[~gaps]) for column, gaps in _columns(targets)]
        self.models = [model for model, _ in moments]
        self.variances = np.maximum([variance for _, variance in moments], _SMALLEST_VARIANCE)
        return self

    def _fitted(self, x: Floats, y: Floats, weights: Floats) -> tuple[Any, float]:
        """The model of one output, and the variance of its residuals on other rows of weight one."""
        if not len(y):
            return 0.0, 1.0
        mean = float(np.average(y, weights=weights))
        return mean, float(np.mean(weights * (y - mean) ** 2)) * (1.0 + 2.0 / len(y))

    def _means(self, x: Floats) -> list[Floats]:
        return [np.full(len(x), mean) for mean in self.models]

    def predict(self, x: Floats, weights: Floats | None = None) -> Floats:
        """Means and variances of new observations of given weights, (N, 2, T)."""
        means = np.stack(self._means(x), axis=-1)
        variances = np.broadcast_to(self.variances, means.shape)
        return np.stack([means, variances if weights is None else variances / weights[:, None]], axis=1)


class Linear(Constant):
    """Ridge regression of every output, whose penalty and variance come from rows left out."""

    def fit(self, x: Floats, targets: Floats, weights: Floats | None) -> Self:
        return super().fit(*_some_rows(x, targets, weights, targets.shape[1]))

    def _fitted(self, x: Floats, y: Floats, weights: Floats) -> tuple[Any, float]:
        if len(y) < 3:
            return super()._fitted(x, y, weights)
        model = RidgeCV(_PENALTIES, store_cv_results=True).fit(x, y, sample_weight=weights)
        squares = model.cv_results_.reshape(len(y), len(_PENALTIES))[:, _PENALTIES.index(float(model.alpha_))]
        return model, float(np.mean(squares))

    def _means(self, x: Floats) -> list[Floats]:
        return [m.predict(x) if isinstance(m, RidgeCV) else np.full(len(x), m) for m in self.models]


def linear_seconds(num_rows: int, num_columns: int, num_outputs: int) -> float:
    """About how long a linear model takes."""
    return _SECONDS * min(_most_rows(num_columns, num_outputs), num_rows) * num_columns * num_outputs


def _most_rows(num_columns: int, num_outputs: int) -> int:
    return int(min(_MOST_ROWS, max(500.0, _MOST_NUMBERS / (num_columns * num_outputs))))


def _columns(targets: Floats) -> list[tuple[Floats, NDArray[np.bool_]]]:
    """The outputs one by one, and where they are missing."""
    return [(column, np.isnan(column)) for column in targets.T]


def _some_rows(x: Floats, y: Any, weights: Floats | None, num_outputs: int) -> tuple[Any, Any, Any]:
    """Random rows, as many as a linear model takes."""
    count = _most_rows(x.shape[1], num_outputs)
    if len(x) <= count:
        return x, y, weights
    chosen = np.random.default_rng(0).choice(len(x), count, replace=False)
    return x[chosen], y[chosen], None if weights is None else weights[chosen]
