"""Which inputs matter: Sobol' indices, Shapley effects, main effects, derivatives, and error propagation of models."""

from .copula import GaussianCopula
from .effects import DerivativeSensitivities, MainEffects, derivative_sensitivities, main_effects
from .estimate import Estimate
from .indices import SobolIndices, sobol_indices
from .inputs import Empirical, InputDistribution, Normal, Uniform
from .propagation import Propagation, propagate
from .shapley import ShapleyEffects, shapley_effects

__all__ = [
    "DerivativeSensitivities",
    "Empirical",
    "Estimate",
    "GaussianCopula",
    "InputDistribution",
    "MainEffects",
    "Normal",
    "Propagation",
    "ShapleyEffects",
    "SobolIndices",
    "Uniform",
    "derivative_sensitivities",
    "main_effects",
    "propagate",
    "shapley_effects",
    "sobol_indices",
]
