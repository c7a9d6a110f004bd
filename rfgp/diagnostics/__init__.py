"""How far from exact, and how good: divergences, kernel errors and scores."""

from .coverage import coverage_at_least, kl_reading
from .exact import exact_posterior
from .kernel_error import relative_frobenius_error
from .kl import kl_divergence, kl_to_exact
from .lost_posterior import warn_of_lost_posterior
from .predictive import classification_mnll, error_rate, regression_mnll, rmse

__all__ = [
    "classification_mnll",
    "coverage_at_least",
    "error_rate",
    "exact_posterior",
    "kl_divergence",
    "kl_reading",
    "kl_to_exact",
    "regression_mnll",
    "relative_frobenius_error",
    "rmse",
    "warn_of_lost_posterior",
]
