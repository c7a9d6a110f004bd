"""Probabilistic error bounds: how likely an error is with D features, and how many features keep it unlikely.

Every theorem is a :class:`TailBound`: a factor and a rate, from which come the probability of failure for a number of
features, and the number of features for an error epsilon and a probability delta. Pointwise bounds hold for a single
pair of inputs (:func:`rademacher_bound`, :func:`fourier_bound`); uniform bounds hold for all pairs from a compact set
at once (:func:`rahimi_recht_bound`, :func:`sutherland_schneider_bound`). Those for operator-valued kernels bound the
norm of an error that is a matrix (:func:`operator_fourier_bound` at a pair of inputs; :func:`minh_bound`,
:func:`brault_bounded_bound` and :func:`brault_subexponential_bound` uniformly). The bound for kernel derivatives, whose
exponent is not linear in D, is three functions of its own: :func:`derivative_error_bound`,
:func:`derivative_failure_probability` and :func:`derivative_num_features`.

``num_features`` is the number of columns that come out, of the scalar map for operators; for Fourier features these are
the cos and sin columns, two per frequency. All features have to be independent: neither orthogonal nor structured ones
are covered.
"""

from .derivatives import derivative_error_bound, derivative_failure_probability, derivative_num_features
from .fourier import (
    fourier_bound,
    fourier_num_features,
    fourier_variance,
    rahimi_recht_bound,
    sutherland_schneider_bound,
)
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
    "TailBound",
    "brault_bounded_bound",
    "brault_subexponential_bound",
    "curl_free_constants",
    "decomposable_constants",
    "derivative_error_bound",
    "derivative_failure_probability",
    "derivative_num_features",
    "divergence_free_constants",
    "fourier_bound",
    "fourier_num_features",
    "fourier_variance",
    "minh_bound",
    "operator_fourier_bound",
    "operator_fourier_variance",
    "over_compact_set",
    "rademacher_bound",
    "rahimi_recht_bound",
    "sutherland_schneider_bound",
]
