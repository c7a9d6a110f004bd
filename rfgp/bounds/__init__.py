"""Probabilistic error bounds: how likely an error is with D features, and how many features keep it unlikely.

Every bound comes in two forms: the probability of failure for a number of features, and the number of features for an
error epsilon and a probability delta. Pointwise bounds hold for a single pair of inputs
(:func:`rademacher_failure_probability`, :func:`fourier_failure_probability`); uniform bounds hold for all pairs from a
compact set at once (:func:`rahimi_recht_failure_probability`, :func:`sutherland_schneider_failure_probability`,
:func:`derivative_failure_probability`). Those for operator-valued kernels bound the norm of an error that is a matrix
(:func:`operator_fourier_failure_probability` at a pair of inputs; :func:`minh_failure_probability`,
:func:`brault_bounded_failure_probability` and :func:`brault_subexponential_failure_probability` uniformly).
``num_features`` is the number of columns that come out, of the scalar map for operators; for Fourier features these are
the cos and sin columns, two per frequency. All features have to be independent: neither orthogonal nor structured ones
are covered.
"""

from .derivatives import derivative_error_bound, derivative_failure_probability, derivative_num_features
from .fourier import fourier_failure_probability, fourier_num_features, fourier_variance
from .operator_valued import (
    brault_bounded_failure_probability,
    brault_bounded_num_features,
    brault_subexponential_failure_probability,
    brault_subexponential_num_features,
    curl_free_constants,
    decomposable_constants,
    divergence_free_constants,
    minh_failure_probability,
    minh_num_features,
    operator_fourier_failure_probability,
    operator_fourier_num_features,
    operator_fourier_variance,
)
from .rademacher import rademacher_failure_probability, rademacher_num_features
from .uniform import (
    rahimi_recht_failure_probability,
    rahimi_recht_num_features,
    sutherland_schneider_failure_probability,
    sutherland_schneider_num_features,
)

__all__ = [
    "brault_bounded_failure_probability",
    "brault_bounded_num_features",
    "brault_subexponential_failure_probability",
    "brault_subexponential_num_features",
    "curl_free_constants",
    "decomposable_constants",
    "derivative_error_bound",
    "derivative_failure_probability",
    "derivative_num_features",
    "divergence_free_constants",
    "fourier_failure_probability",
    "fourier_num_features",
    "fourier_variance",
    "minh_failure_probability",
    "minh_num_features",
    "operator_fourier_failure_probability",
    "operator_fourier_num_features",
    "operator_fourier_variance",
    "rademacher_failure_probability",
    "rademacher_num_features",
    "rahimi_recht_failure_probability",
    "rahimi_recht_num_features",
    "sutherland_schneider_failure_probability",
    "sutherland_schneider_num_features",
]
