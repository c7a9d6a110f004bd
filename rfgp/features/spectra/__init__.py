"""Spectral densities of shift-invariant kernels: one distribution per file, each with the kernel that it belongs to."""

from .advected import Advected
from .base import IsotropicSpectrum, Spectrum
from .gaussian import Gaussian
from .hyperbolic_secant import HyperbolicSecant
from .laplace import Laplace
from .matern import Matern
from .periodic import Periodic
from .power_weighted import PowerWeighted, radial_moment
from .rational_quadratic import RationalQuadratic
from .special_functions import scaled_bessel
from .spectral_mixture import SpectralMixture
from .spherical import Spherical
from .trace_measure import TraceMeasure
from .widened_gaussian import WidenedGaussian

__all__ = [
    "Advected",
    "Gaussian",
    "HyperbolicSecant",
    "IsotropicSpectrum",
    "Laplace",
    "Matern",
    "Periodic",
    "PowerWeighted",
    "RationalQuadratic",
    "SpectralMixture",
    "Spectrum",
    "Spherical",
    "TraceMeasure",
    "WidenedGaussian",
    "radial_moment",
    "scaled_bessel",
]
