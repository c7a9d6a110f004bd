"""Kernels with random features, and how to get them from exact GPyTorch kernels."""

from .approximate import approximate, with_features
from .composition import FeatureScaleKernel
from .feature_kernel import FeatureKernel, FeatureStructure
from .feature_operator import FeatureCrossLinearOperator, FeatureLinearOperator, FeaturePlusDiagLinearOperator
from .prediction import FeaturePredictionStrategy
from .recipe import METHODS, MapRecipe

__all__ = [
    "METHODS",
    "FeatureCrossLinearOperator",
    "FeatureKernel",
    "FeatureLinearOperator",
    "FeaturePlusDiagLinearOperator",
    "FeaturePredictionStrategy",
    "FeatureScaleKernel",
    "FeatureStructure",
    "MapRecipe",
    "approximate",
    "with_features",
]
