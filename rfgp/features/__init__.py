"""Random feature maps, one class per file, with their spectra and their allocation. They know no kernel of GPyTorch."""

from . import allocation as allocation
from .base import FeatureMap
from .ctr import ComplexToReal, polynomial_sketch
from .fourier import RandomFourier
from .linear import LinearFeatures
from .maclaurin import Maclaurin
from .optical import OpticalFeatures
from .polynomial_sketch import PolynomialSketch
from .product import ProductSketch
from .series import FourierSeries
from .sketch_registry import register_sketch
from .spectra import (
    Advected,
    Gaussian,
    HyperbolicSecant,
    Laplace,
    Matern,
    Periodic,
    PowerWeighted,
    RationalQuadratic,
    SpectralMixture,
    Spectrum,
    TraceMeasure,
    WidenedGaussian,
)
from .spherical import SphericalFourier
from .srht import TensorSRHT
from .tensor_sketch import TensorSketch

__all__ = [
    "Advected",
    "ComplexToReal",
    "FeatureMap",
    "FourierSeries",
    "Gaussian",
    "HyperbolicSecant",
    "Laplace",
    "LinearFeatures",
    "Maclaurin",
    "Matern",
    "OpticalFeatures",
    "Periodic",
    "PolynomialSketch",
    "PowerWeighted",
    "ProductSketch",
    "RandomFourier",
    "RationalQuadratic",
    "SpectralMixture",
    "Spectrum",
    "SphericalFourier",
    "TensorSRHT",
    "TensorSketch",
    "TraceMeasure",
    "WidenedGaussian",
    "polynomial_sketch",
    "register_sketch",
]
