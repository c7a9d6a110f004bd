"""Kernels with random features, how to get them from exact GPyTorch kernels, and exact kernels that GPyTorch lacks."""

from . import families as families
from .advected import AdvectedKernel
from .approximated import with_features
from .curl_free import CurlFreeKernel
from .decomposable import DecomposableKernel
from .divergence_free import DivergenceFreeKernel
from .dot_product import DotProductKernel, ExponentialDotProductKernel
from .family import Family, approximates, family
from .feature_kernel import FeatureKernel
from .helmholtz import HelmholtzKernel
from .hilbert_schmidt import hilbert_schmidt_variance
from .landmark_kernel import LandmarkKernel
from .laplace import LaplaceKernel
from .method import METHODS
from .normal_density import use_features
from .observation import ObservationKernel
from .observed import LinearlyObservedKernel
from .operator_valued import OperatorValuedKernel
from .optical import OpticalKernel
from .random_feature_kernel import RandomFeatureKernel
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
    "FeatureKernel",
    "GraphLaplacianCovariance",
    "HelmholtzKernel",
    "LandmarkKernel",
    "LaplaceKernel",
    "LinearlyObservedKernel",
    "ObservationKernel",
    "OperatorValuedKernel",
    "OpticalKernel",
    "RandomFeatureKernel",
    "SkewedChiSquaredKernel",
    "SpectralDensityKernel",
    "StationaryKernel",
    "approximates",
    "family",
    "hilbert_schmidt_variance",
    "with_features",
]

use_features()
