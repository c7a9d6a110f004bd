"""scikit-learn's boosting, which is measured beside the estimators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from .rows import Method, Predictions, Rows, all_classes, per_output


def boosting(rows: Rows, trees: int | None) -> Iterator[tuple[str, Callable[[], Predictions]]]:
    """scikit-learn's defaults, or many trees ended early; the variance is that of a tenth that was not fitted to."""
    order = np.random.RandomState(0).permutation(len(rows.x))
    held, train = np.split(order, [len(order) // 10])
    options = {"random_state": 0} if trees is None else {"max_iter": trees, "early_stopping": True, "random_state": 0}
    if rows.num_classes:
        classifier = HistGradientBoostingClassifier(**options).fit(rows.x, rows.y)
        yield "", lambda: all_classes(classifier.predict_proba(rows.test_x), classifier.classes_, rows.num_classes)
        return
    model = HistGradientBoostingRegressor(**options).fit(rows.x[train], rows.y[train])
    variance = np.mean((rows.y[held] - model.predict(rows.x[held])) ** 2)
    yield "", lambda: (model.predict(rows.test_x), np.full(len(rows.test_x), variance))


NUMBERS: dict[str, Method] = {
    "boosting": per_output(partial(boosting, trees=None)),
    "boosting, up to 1,000 trees": per_output(partial(boosting, trees=1000)),
}
CLASSES: dict[str, Method] = {"boosting": partial(boosting, trees=None)}
