"""Spectral laws of shift-invariant kernels: one law per file, each with the kernel that it belongs to."""

from .base import IsotropicSpectrum, Spectrum
from .gaussian import Gaussian
from .hyperbolic_secant import HyperbolicSecant
from .laplace import Laplace
from .matern import Matern
from .periodic import Periodic
from .power_weighted import Weighted, radial_moment
from .rational_quadratic import RationalQuadratic
from .scaled_bessel import ScaledBessel
from .spectral_mixture import SpectralMixture
from .spherical import Spherical
from .trace_measure import TraceMeasure
from .widened_gaussian import Widened

__all__ = [
    "Gaussian",
    "HyperbolicSecant",
    "IsotropicSpectrum",
    "Laplace",
    "Matern",
    "Periodic",
    "RationalQuadratic",
    "ScaledBessel",
    "SpectralMixture",
    "Spectrum",
    "Spherical",
    "TraceMeasure",
    "Weighted",
    "Widened",
    "radial_moment",
]
