"""Kernels with random features, how to get them from exact GPyTorch kernels, and exact kernels that GPyTorch lacks."""

from .approximate import approximate, with_features
from .composition import FeatureProductKernel, FeatureScaleKernel, FeatureSumKernel
from .dot_product import DotProductKernel
from .exponential import ExponentialDotProductKernel
from .feature_kernel import FeatureKernel, FeatureStructure
from .feature_operator import FeatureCrossLinearOperator, FeatureLinearOperator, FeaturePlusDiagLinearOperator
from .optical import OpticalKernel
from .prediction import FeaturePredictionStrategy
from .recipe import METHODS, MapRecipe
from .skewed_chi2 import SkewedChiSquaredKernel

__all__ = [
    "METHODS",
    "DotProductKernel",
    "ExponentialDotProductKernel",
    "FeatureCrossLinearOperator",
    "FeatureKernel",
    "FeatureLinearOperator",
    "FeaturePlusDiagLinearOperator",
    "FeaturePredictionStrategy",
    "FeatureProductKernel",
    "FeatureScaleKernel",
    "FeatureStructure",
    "FeatureSumKernel",
    "MapRecipe",
    "OpticalKernel",
    "SkewedChiSquaredKernel",
    "approximate",
    "with_features",
]
