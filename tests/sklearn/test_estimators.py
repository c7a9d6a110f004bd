"""The estimators keep scikit-learn's contract, and say what the models inside them say."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from rfgp.sklearn import RandomFeatureGPClassifier, RandomFeatureGPRegressor, RandomFeatures

SMALL = {"max_evaluations": 20}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [
        RandomFeatureGPRegressor(**SMALL),
        RandomFeatureGPClassifier(**SMALL),
        RandomFeatures(num_features=32),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)
