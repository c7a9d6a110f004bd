"""Kernels with random features, how to get them from exact GPyTorch kernels, and exact kernels that GPyTorch lacks."""

from .advected import AdvectedKernel
from .approximated import with_features
from .curl_free import CurlFreeKernel
from .decomposable import DecomposableKernel
from .divergence_free import DivergenceFreeKernel
from .dot_product import DotProductKernel
from .exponential import ExponentialDotProductKernel
from .families.index import FeatureIndexKernel
from .families.multitask import FeatureMultitaskKernel
from .families.observation import FeatureObservationKernel
from .families.product import FeatureProductKernel
from .families.scale import FeatureScaleKernel
from .families.shared_measure import SharedMeasureKernel
from .families.sum import FeatureSumKernel
from .family import Family, approximates, family
from .feature_kernel import FeatureKernel
from .feature_operator import FeatureCrossLinearOperator, FeatureLinearOperator, LazyFeatureCrossLinearOperator
from .helmholtz import HelmholtzKernel
from .hilbert_schmidt import hilbert_schmidt_variance
from .landmark_kernel import LandmarkKernel
from .laplace import LaplaceKernel
from .method import METHODS, Method
from .noisy_features import NoisyFeaturesLinearOperator
from .normal_density import use_features
from .observation import ObservationKernel
from .observed import LinearlyObservedKernel
from .operator_valued import OperatorValuedKernel
from .optical import OpticalKernel
from .output_features import OutputFeatures
from .prediction import FeaturePredictionStrategy
from .random_feature_kernel import KernelMoments, RandomFeatureKernel
from .recipe import MapRecipe
from .skewed_chi2 import SkewedChiSquaredKernel
from .spectral_density import SpectralDensityKernel
from .stationary import StationaryKernel
from .task_covariance import ConstantCovariance, GraphLaplacianCovariance

__all__ = [
    "METHODS",
    "AdvectedKernel",
    "ConstantCovariance",
    "CurlFreeKernel",
    "DecomposableKernel",
    "DivergenceFreeKernel",
    "DotProductKernel",
    "ExponentialDotProductKernel",
    "Family",
    "FeatureCrossLinearOperator",
    "FeatureIndexKernel",
    "FeatureKernel",
    "FeatureLinearOperator",
    "FeatureMultitaskKernel",
    "FeatureObservationKernel",
    "FeaturePredictionStrategy",
    "FeatureProductKernel",
    "FeatureScaleKernel",
    "FeatureSumKernel",
    "GraphLaplacianCovariance",
    "HelmholtzKernel",
    "KernelMoments",
    "LandmarkKernel",
    "LaplaceKernel",
    "LazyFeatureCrossLinearOperator",
    "LinearlyObservedKernel",
    "MapRecipe",
    "Method",
    "NoisyFeaturesLinearOperator",
    "ObservationKernel",
    "OperatorValuedKernel",
    "OpticalKernel",
    "OutputFeatures",
    "RandomFeatureKernel",
    "SharedMeasureKernel",
    "SkewedChiSquaredKernel",
    "SpectralDensityKernel",
    "StationaryKernel",
    "approximates",
    "family",
    "hilbert_schmidt_variance",
    "with_features",
]

use_features()
