"""Exact kernels that GPyTorch lacks, and nothing else. How they are approximated is another room."""

from .advected import AdvectedKernel
from .curl_free import CurlFreeKernel
from .decomposable import DecomposableKernel
from .divergence_free import DivergenceFreeKernel
from .dot_product import DotProductKernel, ExponentialDotProductKernel
from .helmholtz import HelmholtzKernel
from .input_transform import InputTransformKernel
from .input_transforms import KumaraswamyWarp, LinearMap, SinhArcsinhWarp
from .laplace import LaplaceKernel
from .observation import ObservationKernel
from .observed import LinearlyObservedKernel
from .operator_valued import OperatorValuedKernel
from .optical import OpticalKernel
from .orthogonal_additive import OrthogonalAdditiveKernel
from .skewed_chi2 import SkewedChiSquaredKernel
from .spectral_density import SpectralDensityKernel
from .spherical_coordinates import SphericalCoordinates
from .stationary import StationaryKernel
from .task_covariance import ConstantCovariance, GraphLaplacianCovariance

__all__ = [
    "AdvectedKernel",
    "ConstantCovariance",
    "CurlFreeKernel",
    "DecomposableKernel",
    "DivergenceFreeKernel",
    "DotProductKernel",
    "ExponentialDotProductKernel",
    "GraphLaplacianCovariance",
    "HelmholtzKernel",
    "InputTransformKernel",
    "KumaraswamyWarp",
    "LaplaceKernel",
    "LinearMap",
    "LinearlyObservedKernel",
    "ObservationKernel",
    "OperatorValuedKernel",
    "OpticalKernel",
    "OrthogonalAdditiveKernel",
    "SinhArcsinhWarp",
    "SkewedChiSquaredKernel",
    "SpectralDensityKernel",
    "SphericalCoordinates",
    "StationaryKernel",
]
