"""Estimators with defaults beside boosting of 500 trees."""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from rfgp.sklearn import RandomFeatureGPClassifier, RandomFeatureGPRegressor

from .ratio import ratio

ROWS, TREES = 2_000, 500


class Estimators:
    """Times boosting, of the same rows."""

    unit, timeout = "ratio", 600

    def setup(self) -> None:
        """A table of six inputs."""
        generator = np.random.default_rng(0)
        self.x = generator.normal(size=(ROWS, 6))
        self.y = np.sin(self.x[:, 0]) + self.x[:, 1] * self.x[:, 2] + 0.1 * generator.normal(size=ROWS)

    def track_regressor_to_boosting(self) -> float:
        boosting = HistGradientBoostingRegressor(max_iter=TREES, random_state=0)
        return ratio(
            lambda: RandomFeatureGPRegressor(random_state=0).fit(self.x, self.y), lambda: boosting.fit(self.x, self.y)
        )

    def track_classifier_to_boosting(self) -> float:
        labels = (self.y > 0.0).astype(int)
        boosting = HistGradientBoostingClassifier(max_iter=TREES, random_state=0)
        return ratio(
            lambda: RandomFeatureGPClassifier(random_state=0).fit(self.x, labels), lambda: boosting.fit(self.x, labels)
        )
