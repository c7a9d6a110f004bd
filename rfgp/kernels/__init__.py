"""Kernels with random features, how to get them from exact GPyTorch kernels, and exact kernels that GPyTorch lacks."""

from .approximate import approximate, with_features
from .composition import FeatureProductKernel, FeatureScaleKernel, FeatureSumKernel
from .curl_free import CurlFreeKernel
from .decomposable import DecomposableKernel
from .divergence_free import DivergenceFreeKernel
from .dot_product import DotProductKernel
from .exponential import ExponentialDotProductKernel
from .feature_kernel import FeatureKernel, FeatureStructure
from .feature_operator import FeatureCrossLinearOperator, FeatureLinearOperator
from .helmholtz import HelmholtzKernel
from .laplace import LaplaceKernel
from .moments import hilbert_schmidt_variance
from .multitask import FeatureIndexKernel, FeatureMultitaskKernel
from .noisy_features import NoisyFeaturesLinearOperator
from .observed import LinearlyObservedKernel
from .operator_valued import OperatorValuedKernel
from .optical import OpticalKernel
from .output_features import OutputFeatures
from .prediction import FeaturePredictionStrategy
from .recipe import METHODS, MapRecipe
from .skewed_chi2 import SkewedChiSquaredKernel
from .spectral_density import SpectralDensityKernel
from .task_covariance import ConstantCovariance, GraphLaplacianCovariance

__all__ = [
    "METHODS",
    "ConstantCovariance",
    "CurlFreeKernel",
    "DecomposableKernel",
    "DivergenceFreeKernel",
    "DotProductKernel",
    "ExponentialDotProductKernel",
    "FeatureCrossLinearOperator",
    "FeatureIndexKernel",
    "FeatureKernel",
    "FeatureLinearOperator",
    "FeatureMultitaskKernel",
    "FeaturePredictionStrategy",
    "FeatureProductKernel",
    "FeatureScaleKernel",
    "FeatureStructure",
    "FeatureSumKernel",
    "GraphLaplacianCovariance",
    "HelmholtzKernel",
    "LaplaceKernel",
    "LinearlyObservedKernel",
    "MapRecipe",
    "NoisyFeaturesLinearOperator",
    "OperatorValuedKernel",
    "OpticalKernel",
    "OutputFeatures",
    "SkewedChiSquaredKernel",
    "SpectralDensityKernel",
    "approximate",
    "hilbert_schmidt_variance",
    "with_features",
]
