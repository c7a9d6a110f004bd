"""What a Gaussian process has to beat: what looks at no inputs, a linear model, and boosting."""

from __future__ import annotations

import functools
import time
import warnings
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, PoissonRegressor, RidgeCV
from torch import Tensor
from torch.distributions import Normal, Poisson

from ..training.costs import slowness
from .arrays import Floats
from .scaling import ColumnScaler

_MOST_ROWS, _MOST_NUMBERS = 10_000, 1e7
"""A linear model takes so many rows at most, and so many that rows times columns times outputs are at most that."""
_SECONDS = 3e-7
"""The seconds that logistic regression takes for a row, a column and a class, about."""
_SECONDS_OF_TREE, _SECONDS_OF_COLUMN, _TREES = 3e-3, 1.7e-4, 100
"""Those of boosting for a tree, also for each column, and how many trees there are for a class, or for two."""
_SMALLEST_VARIANCE, _FEWEST_BOOSTED = 1e-9, 10
NO_EVENT = 0.5
"""The number of events that stands for none, where the rate has to be positive."""
_SMALLEST_FACTOR = 1e-9
"""Of rates, over that of all rows."""
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
        self.model = self._fitted(x, codes, weights) if len(np.unique(codes)) > 1 else None
        return self

    def _fitted(self, x: Floats, codes: NDArray[Any], weights: Floats | None) -> Any:
        x, codes, weights = _some_rows(x, codes, weights, self.num_classes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return LogisticRegression().fit(x, codes, sample_weight=weights)

    def predict(self, x: Floats, weights: Floats | None = None) -> Floats:
        logs = super().predict(x)
        if self.model is not None:
            of_known = np.log(np.maximum(self.model.predict_proba(x), np.finfo(np.float64).tiny))
            missing = np.setdiff1d(np.arange(self.num_classes), self.model.classes_)
            share = np.log1p(-np.exp(logs[:, missing]).sum(-1, keepdims=True))
            logs[:, self.model.classes_] = of_known + share
        return logs


class BoostedClasses(LogisticClasses):
    """Boosting by scikit-learn's defaults."""

    def _fitted(self, x: Floats, codes: NDArray[Any], weights: Floats | None) -> Any:
        return HistGradientBoostingClassifier(random_state=0).fit(x, codes, sample_weight=weights)


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
        return [np.full(len(x), model) if isinstance(model, float) else model.predict(x) for model in self.models]

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


class Boosting(Constant):
    """Boosting of every output by scikit-learn's defaults, whose variance is that of errors of a fifth of the rows."""

    def _fitted(self, x: Floats, y: Floats, weights: Floats) -> tuple[Any, float]:
        if len(y) < _FEWEST_BOOSTED:
            return super()._fitted(x, y, weights)
        held, rest = np.split(np.random.default_rng(0).permutation(len(y)), [len(y) // 5])
        model = HistGradientBoostingRegressor(random_state=0)
        errors = model.fit(x[rest], y[rest], sample_weight=weights[rest]).predict(x[held]) - y[held]
        return model.fit(x, y, sample_weight=weights), float(np.average(errors**2, weights=weights[held]))


class ConstantRate:
    """The events of all rows over their exposures, whatever the inputs."""

    model: Any = None

    def fit(self, x: Floats, counts: Floats, exposures: Floats) -> Self:
        """Learn from inputs (N, d), counts (N,) and what they were collected over."""
        self.rate = max(float(counts.sum()), NO_EVENT) / float(exposures.sum())
        return self

    def predict(self, x: Floats, exposures: Floats) -> Floats:
        """The expected counts, (N,)."""
        factor = 1.0 if self.model is None else np.clip(self.model.predict(x), _SMALLEST_FACTOR, 1 / _SMALLEST_FACTOR)
        return exposures * self.rate * factor


class LinearRate(ConstantRate):
    """Poisson regression, whose coefficients of standardized inputs have a standard normal prior."""

    def fit(self, x: Floats, counts: Floats, exposures: Floats) -> Self:
        super().fit(x, counts, exposures)
        if counts.any():
            x, counts, exposures = _some_rows(x, counts, exposures, 1)
            self.model = self._fitted(x, counts, exposures * self.rate) if counts.any() else None
        return self

    def _fitted(self, x: Floats, counts: Floats, expected: Floats) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = PoissonRegressor(alpha=1.0 / expected.sum())
            return model.fit(x, counts / expected, sample_weight=expected)


class BoostedRate(LinearRate):
    """Boosting by scikit-learn's defaults and the Poisson deviance."""

    def _fitted(self, x: Floats, counts: Floats, expected: Floats) -> Any:
        model = HistGradientBoostingRegressor(loss="poisson", random_state=0)
        return model.fit(x, counts / expected, sample_weight=expected)


def rate_baselines(
    x: Tensor, counts: Tensor, exposures: Tensor, x_new: Tensor, exposures_new: Tensor
) -> dict[str, Poisson]:
    """What a linear model, boosting and a trivial model predict of counts at new inputs (M, d), by name."""
    scaler = ColumnScaler().fit(x.numpy())
    known, new = scaler.transform(x.numpy()), scaler.transform(x_new.numpy())
    makes: dict[str, type[ConstantRate]] = {"linear": LinearRate, "boosting": BoostedRate, "trivial": ConstantRate}
    means = {
        name: make().fit(known, counts.numpy(), exposures.numpy()).predict(new, exposures_new.numpy())
        for name, make in makes.items()
    }
    return {name: Poisson(torch.from_numpy(mean), validate_args=False) for name, mean in means.items()}


def baselines(x: Tensor, y: Tensor, x_new: Tensor, num_classes: int | None) -> dict[str, tuple[Normal | Tensor, float]]:
    """What a linear model, boosting and a trivial model predict at new inputs (M, d), by name, and their seconds.

    :param y: targets (N,) or (N, T), where NaN is missing, or numbers of classes (N,).
    :returns: distributions of the shape of targets, or probabilities of classes (M, C).
    """
    scaler = ColumnScaler().fit(x.numpy())
    known, new = scaler.transform(x.numpy()), scaler.transform(x_new.numpy())
    makes: dict[str, Any] = {"linear": Linear, "boosting": Boosting, "trivial": Constant}
    if num_classes is not None:
        classes = (LogisticClasses, BoostedClasses, Frequencies)
        makes = {name: functools.partial(make, num_classes) for name, make in zip(makes, classes, strict=True)}
    targets = y.numpy() if num_classes else y.numpy().reshape(len(y), -1)
    found: dict[str, tuple[Normal | Tensor, float]] = {}
    for name, make in makes.items():
        began = time.perf_counter()
        predicted = torch.from_numpy(make().fit(known, targets, None).predict(new))
        seconds = time.perf_counter() - began
        if num_classes:
            found[name] = predicted.exp(), seconds
        else:
            mean, variance = predicted.unbind(1) if y.dim() > 1 else predicted.squeeze(-1).unbind(1)
            found[name] = Normal(mean, variance.sqrt(), validate_args=False), seconds
    return found


def linear_seconds(num_rows: int, num_columns: int, num_outputs: int) -> float:
    """About how long a linear model takes."""
    count = min(_most_rows(num_columns, num_outputs), num_rows)
    return slowness() * _SECONDS * count * num_columns * num_outputs


def boosted_seconds(num_columns: int, num_classes: int) -> float:
    """About how long boosting of classes takes."""
    trees = _TREES * (1 if num_classes == 2 else num_classes)
    return slowness() * trees * (_SECONDS_OF_TREE + _SECONDS_OF_COLUMN * num_columns)


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
