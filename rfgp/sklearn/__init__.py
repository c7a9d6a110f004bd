"""Estimators for scikit-learn: a table in, predictions with error bars out. Importing them needs scikit-learn."""

from .classifier import RandomFeatureGPClassifier
from .count_regressor import RandomFeatureGPCountRegressor
from .regressor import RandomFeatureGPRegressor
from .table_encoder import TableEncoder
from .transformer import RandomFeatures

__all__ = [
    "RandomFeatureGPClassifier",
    "RandomFeatureGPCountRegressor",
    "RandomFeatureGPRegressor",
    "RandomFeatures",
    "TableEncoder",
]
