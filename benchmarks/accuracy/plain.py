"""What scikit-learn offers for the same rows, with its defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import poisson
from sklearn.base import BaseEstimator, clone
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, PoissonRegressor, RidgeCV
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from .rows import Method, Predictions, Rows, all_classes, per_output, untimed

Points = Iterator[tuple[str, Callable[[], Predictions]]]
SMALLEST_RATE = 1e-6


def numbers(rows: Rows, model: BaseEstimator) -> Points:
    """A regressor, with the variance of residuals of rows out of three folds, which costs it no time here."""
    fitted: Any = clone(model).fit(rows.x, rows.y)
    with untimed():
        residuals = rows.y - cross_val_predict(model, rows.x, rows.y, cv=3)
    yield "", lambda: (fitted.predict(rows.test_x), np.full(len(rows.test_x), np.mean(residuals**2)))


def counts(rows: Rows, model: BaseEstimator) -> Points:
    """A regressor whose predictions are rates of Poisson distributions."""
    fitted: Any = clone(model).fit(rows.x, rows.y)

    def predict() -> Predictions:
        rate = np.maximum(fitted.predict(rows.test_x), SMALLEST_RATE)
        return rate, poisson.logpmf(rows.test_y, rate)

    yield "", predict


def classes(rows: Rows, model: BaseEstimator) -> Points:
    """A classifier; one without probabilities has its labels scored."""
    fitted: Any = clone(model).fit(rows.x, rows.y)
    if hasattr(fitted, "predict_proba"):
        yield "", lambda: all_classes(fitted.predict_proba(rows.test_x), fitted.classes_, rows.num_classes)
    else:
        yield "", lambda: fitted.predict(rows.test_x)


NUMBERS: dict[str, Method] = {
    f"scikit-learn, {name}": per_output(partial(numbers, model=model))
    for name, model in {
        "gradient boosting": HistGradientBoostingRegressor(random_state=0),
        "random forest": RandomForestRegressor(random_state=0),
        "extra trees": ExtraTreesRegressor(random_state=0),
        "linear": RidgeCV(),
    }.items()
}
"""Several outputs have a model each, as by MultiOutputRegressor."""
COUNTS: dict[str, Method] = {
    f"scikit-learn, {name}": partial(counts, model=model)
    for name, model in {
        "gradient boosting": HistGradientBoostingRegressor(loss="poisson", random_state=0),
        "random forest": RandomForestRegressor(criterion="poisson", random_state=0),
        "linear": PoissonRegressor(),
        "constant": DummyRegressor(),
    }.items()
}
CLASSES: dict[str, Method] = {
    f"scikit-learn, {name}": partial(classes, model=model)
    for name, model in {
        "gradient boosting": HistGradientBoostingClassifier(random_state=0),
        "random forest": RandomForestClassifier(random_state=0),
        "extra trees": ExtraTreesClassifier(random_state=0),
        "SVC": SVC(),
        "Nystroem and LogisticRegression": make_pipeline(Nystroem(random_state=0), LogisticRegression()),
        "linear": LogisticRegression(),
        "class frequencies": DummyClassifier(),
    }.items()
}
