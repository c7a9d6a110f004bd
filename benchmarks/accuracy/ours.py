"""The estimators of rfgp."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rfgp.sklearn import RandomFeatureGPClassifier, RandomFeatureGPRegressor

from .rows import Method, Predicted, Predictions, Rows, all_classes


def estimator(**options: Any) -> Method:
    """An estimator with options, defaults else."""

    def fitted(rows: Rows) -> Iterator[tuple[str, Callable[[], Predictions]]]:
        if rows.num_classes:
            classifier = RandomFeatureGPClassifier(**{"random_state": 0, **options}).fit(rows.x, rows.y)
            yield "", lambda: all_classes(classifier.predict_proba(rows.test_x), classifier.classes_, rows.num_classes)
            return
        regressor = RandomFeatureGPRegressor(**{"random_state": 0, **options}).fit(rows.x, rows.y)

        def predict() -> Predictions:
            mean, _ = regressor.predict(rows.test_x, return_std=True)
            return Predicted(
                mean,
                lambda y: regressor.log_density(rows.test_x, y),
                lambda: tuple(np.moveaxis(regressor.predict_interval(rows.test_x), 1, 0)),
            )

        yield "", predict

    return fitted


NUMBERS: dict[str, Method] = {
    "rfgp": estimator(),
    "rfgp, time limit 5 s": estimator(time_limit=5.0),
}
CLASSES = NUMBERS
