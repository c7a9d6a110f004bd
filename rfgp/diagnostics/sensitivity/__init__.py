"""Which inputs matter: Sobol' indices, main effects, derivatives and error propagation of fitted models."""

from .effects import DerivativeSensitivities, MainEffects, derivative_sensitivities, main_effects
from .estimate import Estimate
from .indices import SobolIndices, sobol_indices
from .inputs import Empirical, InputDistribution, Normal, Uniform
from .propagation import Propagation, propagate

__all__ = [
    "DerivativeSensitivities",
    "Empirical",
    "Estimate",
    "InputDistribution",
    "MainEffects",
    "Normal",
    "Propagation",
    "SobolIndices",
    "Uniform",
    "derivative_sensitivities",
    "main_effects",
    "propagate",
    "sobol_indices",
]
