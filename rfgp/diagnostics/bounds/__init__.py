"""Probabilistic error bounds: how likely an error is with D features, and how many features keep it unlikely.

``num_features`` counts columns: two per frequency for Fourier features. All features have to be independent.
"""

from .derivatives import DerivativeBound, derivative_bound
from .fourier import fourier_bound, fourier_variance, rahimi_recht_bound, sutherland_schneider_bound
from .operator_constants import curl_free_constants, decomposable_constants, divergence_free_constants
from .operator_fourier import (
    brault_bounded_bound,
    brault_subexponential_bound,
    minh_bound,
    operator_fourier_bound,
    operator_fourier_variance,
)
from .rademacher import rademacher_bound
from .tail import TailBound, over_compact_set

__all__ = [
    "DerivativeBound",
    "TailBound",
    "brault_bounded_bound",
    "brault_subexponential_bound",
    "curl_free_constants",
    "decomposable_constants",
    "derivative_bound",
    "divergence_free_constants",
    "fourier_bound",
    "fourier_variance",
    "minh_bound",
    "operator_fourier_bound",
    "operator_fourier_variance",
    "over_compact_set",
    "rademacher_bound",
    "rahimi_recht_bound",
    "sutherland_schneider_bound",
]
